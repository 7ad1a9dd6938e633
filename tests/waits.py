"""How retries wait in tests: nobody does."""

from oryx_memory.remote import Pace


class Waits:
    """A clock that moves only when something sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.pace = Pace(self.slept.append, lambda: 0.5, lambda: sum(self.slept))
