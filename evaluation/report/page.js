(() => {
  const box = document.getElementById("controls");
  if (!box) return;
  box.hidden = false;
  const [family, kind, text, count] = ["family", "kind", "text", "count"].map((id) => document.getElementById(id));
  const tasks = [...document.querySelectorAll("details.task")];
  const show = () => {
    const words = text.value.trim().toLowerCase();
    let shown = 0;
    for (const task of tasks) {
      const fits =
        (!family.value || task.dataset.family === family.value) &&
        (!kind.value || task.dataset.kind.split(" ").includes(kind.value)) &&
        (!words || task.textContent.toLowerCase().includes(words));
      task.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    count.textContent = `${shown} of ${tasks.length} tasks`;
  };
  for (const control of [family, kind, text]) control.addEventListener("input", show);
  show();
})();
