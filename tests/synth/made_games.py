"""Made-up text games behind the textworld suite: no Java, and the same scenes every time."""

from __future__ import annotations

from synth.tasks.textworld_games import Scene


class Shed:
    """Light the lamp, then take the coin; who takes the coin in the dark loses.

    In sheds of an odd seed the lamp hangs behind a door.
    """

    def __init__(self, name: str, fold: str, seed: int) -> None:
        self.description = f"Fetch the money of shed {seed} in the {fold} fold."
        self.door, self.open, self.lit = bool(seed % 2), False, False
        self.opening = self._scene("You stand in a dark shed.")

    def step(self, action: str) -> Scene:
        if action == "take coin":
            return Scene("You take it.", (), 1.0 if self.lit else -1.0, won=self.lit, lost=not self.lit)
        if action == "open door":
            self.open = True
        if action == "light lamp":
            self.lit = True
        return self._scene({"look around": "You stand in a shed."}.get(action, f"You {action}."))

    def _scene(self, text: str) -> Scene:
        actions = ["look around", "take coin", "sing"]
        if self.door and not self.open:
            actions.append("open door")
        elif not self.lit:
            actions.append("light lamp")
        return Scene(text, tuple(sorted(actions)), 0.5 if self.lit else 0.0, won=False, lost=False)


class MadeMachine:
    """Counts what is started and made."""

    def __init__(self) -> None:
        self.running, self.starts = False, 0
        self.made: list[tuple[str, str, int]] = []

    def start(self) -> None:
        self.starts += not self.running
        self.running = True

    def stop(self) -> None:
        self.running = False

    def game(self, name: str, settings: str, fold: str, seed: int) -> Shed:
        assert self.running
        self.made.append((name, fold, seed))
        return Shed(name, fold, seed)
