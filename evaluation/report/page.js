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

  const block = document.getElementById("details").textContent.trim();
  if (!block || typeof DecompressionStream === "undefined") return;
  let opened;
  const details = () => {
    opened ??= (async () => {
      const bytes = Uint8Array.from(atob(block), (letter) => letter.charCodeAt(0));
      const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      return JSON.parse(await new Response(plain).text());
    })();
    return opened;
  };
  const made = (tag, content, className) => {
    const node = document.createElement(tag);
    if (content !== undefined) node.textContent = content;
    if (className) node.className = className;
    return node;
  };
  const fold = (title, ...nodes) => {
    const part = made("details");
    part.append(made("summary", title), ...nodes);
    return part;
  };
  const steps = (run) => {
    const list = made("ol");
    for (const [tool, called, saw] of run.steps) {
      const line = made("li", `${tool}(${called}) `);
      line.append(made("span", saw, "saw"));
      list.append(line);
    }
    return list;
  };
  const fill = async (place) => {
    if (place.childElementCount) return;
    const task = (await details()).tasks[place.dataset.task];
    if (!task || place.childElementCount) return;
    const choices = Object.entries(task.decisions).map(([policy, arm]) => `${policy}: ${arm}`).join("\n");
    if (choices) place.append(fold("Decisions of every policy", made("pre", choices)));
    place.append(fold("Decision prompt at Begin", made("pre", task.prompt)));
    for (const [title, prompt] of Object.entries(task.prompts)) place.append(fold(title, made("pre", prompt)));
    for (const [provider, content] of Object.entries(task.texts)) place.append(fold(`Retrieved by ${provider}`, made("pre", content)));
    for (const [arm, run] of Object.entries(task.runs)) {
      if (run.steps.length) place.append(fold(`Steps under ${arm}: answer "${run.answer}" (${run.status})`, steps(run)));
    }
  };
  for (const task of tasks) {
    task.addEventListener("toggle", () => {
      if (task.open) fill(task.querySelector(".detail"));
    });
  }

  const explored = document.getElementById("explored");
  const choice = document.getElementById("explored-task");
  const number = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
  const list = async () => {
    const known = Object.entries((await details()).explored);
    if (!known.length) return;
    for (const [id, task] of known) {
      const option = made("option", `${task.family}: ${task.question}`);
      option.value = id;
      choice.append(option);
    }
    const draw = async () => {
      const task = (await details()).explored[choice.value];
      const table = made("table", undefined, "plain");
      const head = made("tr");
      for (const title of ["arm", "correct", "Begin", "In", "End"]) head.append(made("th", title, title === "arm" ? "" : "num"));
      table.append(head);
      for (const [arm, values] of Object.entries(task.arms)) {
        const row = made("tr");
        row.append(made("td", arm), ...values.map((value) => made("td", number(value), "num")));
        table.append(row);
      }
      document.getElementById("explored-table").replaceChildren(table);
    };
    choice.addEventListener("input", draw);
    explored.hidden = false;
    await draw();
  };
  new IntersectionObserver((seen, watch) => {
    if (seen.some((one) => one.isIntersecting)) {
      watch.disconnect();
      list();
    }
  }).observe(box);
})();
