"""The workers of a cluster: who can be given work, asked or told, and who is left alone for not answering."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from psmds_dist.core.types import ClusterLost
from psmds_dist.executor.errors import ATTEMPTS
from psmds_dist.executor.rpc import register_handler
from psmds_dist.executor.tasks import probe, stay

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")

log = logging.getLogger(__name__)

PATIENCE = 60
"""Seconds that a cluster without any free worker is given to get one before a run begins."""

PAUSE = 0.5
"""Seconds until an order is given again in the middle of which a worker died."""

RECENT = 1.0
"""Seconds for which it is good to have looked at the workers: one that goes meanwhile is noticed all the same."""

SHOWN = 5.0
"""Seconds for which a call by tasks is good: until then the scheduler need not see the next ones."""

QUIET = 2
"""Seconds that may be waited for workers without a word."""


class Worker(NamedTuple):
    """A worker process as the scheduler knows it; its name outlives a restart, its address does not."""

    name: str
    address: str
    threads: int
    memory_limit: int
    status: str
    last_seen: float


class WorkerPool:
    """Looks after the workers of a client's cluster.

    A worker is silent once others have sent heartbeats for `deadline` seconds since its last one: it hangs, or its
    machine is gone. A worker is suspect from missing a deadline until it answers a probe, which waits behind the
    work that it has. Neither gets blocks, nor is it waited for.

    Parameters
    ----------
    client : distributed.Client
        A connected client.
    deadline : float
        Seconds.
    """

    def __init__(self, client: Client, deadline: float) -> None:
        self.client = client
        self.deadline = deadline
        self.present: dict[str, Worker] = {}
        """Workers that the scheduler has, by address."""

        self.lingering: dict[str, Future] = {}
        """The last answer of each worker, let go of with the next call: a message holds the next one up for 10 ms."""

        self._seen = -math.inf
        self.shown = -math.inf
        """When the scheduler last saw tasks of a call."""

        self.listening: set[str] = set()
        """Addresses of workers that were taught to answer; after a loss a successor may be at one of them."""

        self._kept = -math.inf
        self.stays: dict[str, Future] = {}
        """Tasks by which the scheduler sees that workers are needed, by address."""

        self._silent: set[str] = set()
        self._suspects: dict[str, Future] = {}

    def look(self) -> dict[str, Worker]:
        """Ask the scheduler who is there and return who is `able`."""
        self.require_scheduler()
        if self.client.status == "running":
            with suppress(OSError):  # the client is about to notice that its scheduler is gone
                info = self._in_loop(self._identity)
                self.present = {address: _worker(address, facts) for address, facts in info["workers"].items()}
        self._suspects = {a: f for a, f in self._suspects.items() if a in self.present and not f.done()}
        self._note_silence()
        self._seen = time.monotonic()
        return self.able

    async def _identity(self) -> dict[str, Any]:
        facts: dict[str, Any] = await self.client.scheduler.identity(n_workers=-1)
        return facts

    def recent(self) -> dict[str, Worker]:
        """Workers that were able a moment ago, by name; none when nobody has looked since."""
        return self.able if time.monotonic() - self._seen < RECENT else {}

    def holders(self, future: Future) -> set[str]:
        """Addresses of the workers that hold a result, as far as the scheduler can be asked."""
        from distributed.comm import CommClosedError

        try:
            [found] = self.client.who_has([future]).values()
        except CommClosedError:
            return set()
        return set(found)

    def _note_silence(self) -> None:
        """Compare heartbeats with each other, all by the scheduler's clock."""
        latest = max((worker.last_seen for worker in self.present.values()), default=0.0)
        longest = max(self.deadline, 3 * _heartbeats_every(len(self.present)))
        silent = {a for a, worker in self.present.items() if latest - worker.last_seen > longest}
        for address in silent - self._silent:
            log.info("worker %s has not been heard of for %.0f s: others do its work", address, longest)
        self._silent = silent

    @property
    def trusted(self) -> dict[str, Worker]:
        """Workers that are taken to be at their work, by address; suspects only when there is nobody else."""
        heard = {address: worker for address, worker in self.present.items() if address not in self._silent}
        return {a: worker for a, worker in heard.items() if a not in self._suspects} or heard

    @property
    def able(self) -> dict[str, Worker]:
        """Workers that can be given blocks, by name."""
        return {worker.name: worker for worker in self.trusted.values() if worker.status == "running"}

    def can_be_asked(self) -> bool:
        """Whether all able workers can be asked directly now; those that are new are taught to answer."""
        if time.monotonic() - self.shown > SHOWN:
            return False
        able = {worker.address for worker in self.able.values()}
        if not able <= self.listening:
            self.listening = {address for address, answer in self.ask(register_handler).items() if answer is True}
        return able <= self.listening

    def keep(self) -> None:
        """Leave a task with workers that are asked directly, lest the scheduler close them, or itself, as idle."""
        asked = {worker.address for worker in self.able.values()}
        if time.monotonic() - self._kept > SHOWN or asked != self.stays.keys():
            self._kept = time.monotonic()
            self.stays = {address: self.submit(stay, 2 * SHOWN, workers=[address]) for address in asked}

    def suspect(self, address: str) -> None:
        """Give a worker no more blocks until it answers."""
        if address in self._suspects or address in self._silent:
            return
        log.info("worker %s is late: others do its work until it answers", address)
        key = f"psmds-probe-{uuid.uuid4().hex}"
        self._suspects[address] = self.submit(probe, key=key, workers=[address])

    def is_suspect(self, address: str) -> bool:
        """Whether a worker has missed a deadline and not answered since."""
        return address in self._suspects

    def submit(self, function: Callable[..., Any], *args: Any, **how: Any) -> Future:
        """Submit a task."""
        with self.scheduler_required():
            return self.client.submit(function, *args, pure=False, **how)

    @contextmanager
    def scheduler_required(self) -> Iterator[None]:
        """Say in words of ours that a client lost its scheduler, or was closed, in the middle of something."""
        try:
            yield
        except Exception:  # Dask has its own words only lately, and none for a loop that has ended
            self.require_scheduler()
            raise

    def require_scheduler(self) -> None:
        """Raise when the client has given up on its scheduler, which Dask lets it try for half a minute."""
        if self.client.status in ("closing", "closed"):
            raise ClusterLost(
                "the Dask scheduler is gone, or the client was closed: start the cluster again, and then this run."
            )

    def await_able(self, patience: float = math.inf) -> dict[str, Worker]:
        """Wait until someone can work; a task that asks for it makes an adaptive cluster start a worker.

        Raises
        ------
        ClusterLost
            When nobody can in ``patience`` seconds, or in Dask's own distributed.scheduler.no-workers-timeout.
        """
        began = time.monotonic()
        call: Future | None = None
        told = False
        while not self.look():
            waited = time.monotonic() - began
            if waited > patience or (call is not None and call.status == "error"):
                raise self._nobody_free(waited)
            if waited > QUIET and not told:
                log.info("no worker is connected to %s: waiting for one", self._place())
                told = True
            if call is None or call.done():
                call = self.submit(int)
            time.sleep(0.1)
        return self.able

    def await_free(self, patience: float) -> None:
        """Wait until an able worker has time.

        Raises
        ------
        ClusterLost
            When nobody has in ``patience`` seconds.
        """
        end = time.monotonic() + patience
        asked_of: list[str] = []
        told = False
        while (left := end - time.monotonic()) > 0:
            able = sorted(worker.address for worker in self.await_able(left).values())
            if able != asked_of:  # a task that waits for workers which are gone would wait for ever
                asked, asked_of = self.submit(int, workers=able), able
            try:
                asked.result(timeout=min(QUIET, left))
            except (TimeoutError, CancelledError):
                if not told:
                    log.info("all workers of %s are busy: waiting for one", self._place())
                told = True
            else:
                return
        raise self._nobody_free(patience)

    def _nobody_free(self, patience: float) -> ClusterLost:
        return ClusterLost(
            f"the Dask scheduler at {self._place()} has had no free worker for {patience:.0f} seconds: start some "
            f"with 'dask worker {self._place()}', or wait for those that are starting."
        )

    def nobody_answers(self) -> ClusterLost:
        """Make the error for a cluster whose workers all hang."""
        return ClusterLost(
            f"none of the {len(self.present)} workers of the Dask scheduler at {self._place()} has answered in "
            f"{self.deadline:g} seconds: see whether they hang, and start them again."
        )

    def _place(self) -> str:
        return str(self.client.scheduler.address)

    def at_once(self, order: Callable[[], None]) -> None:
        """Give an order in the event loop, so that all messages it makes leave together."""

        async def give() -> None:
            order()

        self._in_loop(give)

    def _in_loop(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Wait for something in the event loop, which may end before: Dask's own way would then wait for ever.

        And asyncio's would leave a coroutine that nobody awaits, where the loop has ended already.
        """

        async def begin() -> None:
            try:
                answer.set_result(await function(*args))
            except asyncio.CancelledError:  # a loop that ends gives up what it has begun; no exit of ours
                answer.set_exception(CancelledError())
            except Exception as error:
                answer.set_exception(error)

        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self.scheduler_required():
            self.client.loop.add_callback(begin)
            while not wait([answer], timeout=QUIET).done:
                self.require_scheduler()
            return answer.result()

    def ask(self, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        """What each able worker answers, by address; an error is an answer. Who does not answer is suspect."""
        asked = [worker.address for worker in self.able.values()]
        answers: dict[str, Any] = {}
        for address, answer in zip(asked, self._in_loop(self._answers, asked, function, *args), strict=True):
            if isinstance(answer, TimeoutError):
                self.suspect(address)
            elif isinstance(answer, dict):
                answers |= answer
        return answers

    async def _answers(self, asked: list[str], function: Callable[..., Any], *args: Any) -> list[Any]:
        """Answers in the event loops of workers, which are free while they compute."""

        async def one(address: str) -> Any:
            answer = self.client.run(function, *args, workers=[address], on_error="return")
            return await asyncio.wait_for(answer, self.deadline)

        return await asyncio.gather(*map(one, asked), return_exceptions=True)

    def leave(self, function: Callable[[], object], addresses: Iterable[str]) -> None:
        """Have workers do something when they come back; for one that does not, another does it, lest the task stay."""
        from distributed import fire_and_forget

        for address in addresses:
            fire_and_forget(self.submit(function, workers=[address], allow_other_workers=True))

    def tell(self, order: Callable[[], Awaitable[object]]) -> None:
        """Give an order that goes to all workers, and wait until it is carried out while everybody answers.

        When one of them dies meanwhile the scheduler hangs up, so the order, which may be given twice, is given again.
        """
        from distributed.comm import CommClosedError

        for left in reversed(range(ATTEMPTS)):
            try:
                self._told(order)
                break
            except CommClosedError:
                if not left:
                    raise
                time.sleep(PAUSE)
                self.look()

    def _told(self, order: Callable[[], Awaitable[object]]) -> None:
        asked = [worker.address for worker in self.able.values()]

        async def told() -> list[Any]:
            carried_out = asyncio.ensure_future(order())
            carried_out.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio complains
            answers = await self._answers(asked, bool)
            everyone = len(asked) == len(self.present) and not any(isinstance(a, TimeoutError) for a in answers)
            await asyncio.wait({carried_out}, timeout=None if everyone else 0)
            if carried_out.done():
                carried_out.result()
            return answers

        for address, answer in zip(asked, self._in_loop(told), strict=True):
            if isinstance(answer, TimeoutError):
                self.suspect(address)


def _worker(address: str, facts: dict[str, Any]) -> Worker:
    limit = int(facts.get("memory_limit") or 0)
    return Worker(str(facts["name"]), address, int(facts["nthreads"]), limit, facts["status"], facts["last_seen"])


def _heartbeats_every(workers: int) -> float:
    from distributed.scheduler import heartbeat_interval

    return float(heartbeat_interval(workers))
