"""The login worker without a thread: steps run at once, or when the test says so."""

from __future__ import annotations

from kfast.security.login_worker import LoginStep
from kfast.security.sasl.mechanism import Work


class LoginSteps:
    """Implements ``StepRunner``.

    Attributes
    ----------
    is_prompt : bool
        Whether a step is done as soon as it is submitted.
    waiting : list of LoginStep
        Steps that are not, for `run_all`.
    """

    def __init__(self) -> None:
        self.is_prompt = True
        self.waiting: list[LoginStep] = []

    def submit(self, work: Work) -> LoginStep:
        step = LoginStep(work)
        if self.is_prompt:
            step.run()
        else:
            self.waiting.append(step)
        return step

    def run_all(self) -> None:
        """Run what waits and was not cancelled."""
        waiting, self.waiting = self.waiting, []
        for step in waiting:
            if not step.is_cancelled:
                step.run()
