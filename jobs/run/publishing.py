"""The changelog topics of a run: each is followed by a thread of its own, told of a commit as subscribers are.

An epoch never waits for a topic. A drain brings the topics to its last commits before it ends; a run that follows is
behind by what one transaction takes, and by half a second at most where versions come faster than that.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from strandline.jobs.publish.publisher import open_publisher
from strandline.jobs.publish.topic import PublisherFenced, published_views, topic_as_source
from strandline.jobs.serve.watch import CommitWatch, Poller
from strandline.state_store.errors import StrandlineError, TableMissing
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.publish.publisher import Published, Publisher

log = logging.getLogger("strandline")

PAUSE_SECONDS: Final = 0.5
"""Between two publications of a topic. The threads share the interpreter with the epochs: back to back ones of 1,000
events took 127 ms beside publications without a pause, 91 with it, 95 alone."""
PATIENCE_SECONDS: Final = 60.0
"""How long a topic may stay behind that another publisher has taken: a `strandline publish` that ran once, or one that
was killed, is over then."""


class FollowedTopic(Poller):
    """One changelog topic and the thread that publishes to it.

    Args:
        told: called in that thread of each publication that wrote something.

    Attributes:
        error: why the topic stands still; None while it does not.
    """

    def __init__(self, settings: Settings, view: str, topic: str, told: Callable[[Published], None]) -> None:
        self.view = view
        self.topic = topic
        self.error: StrandlineError | None = None
        self._settings = settings
        self._told = told
        self._publisher: Publisher | None = None
        self._fenced: float | None = None
        super().__init__(f"topic {topic}", PAUSE_SECONDS)
        self.begin()

    def look(self) -> bool:
        try:
            if not self._yields():
                self._publish()
        except StrandlineError as error:
            log.warning("the topic '%s' stands still: %s", self.topic, error)
        return True

    def _publish(self) -> None:
        try:
            self.catch_up()
        except PublisherFenced as error:
            log.warning("the topic '%s' is left to another publisher: %s", self.topic, error)
            self._fenced = time.monotonic()
            self._yields()

    def _yields(self) -> bool:
        """True as long as the publisher that fenced this one keeps the topic fresh: to begin again would fence it."""
        if self._fenced is None:
            return False
        publisher = open_publisher(self._settings, self.view)
        try:
            fresh = publisher.plan().way == "nothing"
        finally:
            publisher.close()
        if fresh:
            self._fenced, self.error = time.monotonic(), None
        elif time.monotonic() - self._fenced > PATIENCE_SECONDS:
            self._fenced = None
        return self._fenced is not None

    def catch_up(self) -> None:
        """Publish what there is. Errors as of `Publisher.catch_up`; a view without a table has nothing."""
        try:
            self._publisher = self._publisher or open_publisher(self._settings, self.view)
            done = self._publisher.catch_up()
            self.error = None
            if done.records:
                self._told(done)
        except TableMissing:
            self.error = None
        except StrandlineError as error:
            self.error = error
            self.give_back()
            raise

    def give_back(self) -> None:
        """Close the publisher; the next look opens another, from the definition as it is then."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()


@contextmanager
def publishing(
    settings: Settings, definitions: Iterable[Definition], told: Callable[[Published], None], *, drained: bool
) -> Iterator[dict[str, StrandlineError]]:
    """Publish the changelog topics of these definitions while the body runs.

    Args:
        told: of each publication that wrote something, in any thread.
        drained: when the body ends without an error, publish what it has committed.

    Yields:
        {topic: why it stands still}, filled in at the end.
    """
    failures: dict[str, StrandlineError] = {}
    followed = {
        view.name: FollowedTopic(settings, view.name, topic_as_source(view).topic, told)
        for view in published_views(definitions)
    }
    if not followed:
        yield failures
        return

    def wake(table: str) -> None:
        if table in followed:
            followed[table].wake()

    ended = False
    try:
        with CommitWatch(LakeLayout(settings.lake), wake, lambda: followed):
            yield failures
        ended = True
    finally:
        for each in followed.values():
            each.stop()
        for each in followed.values():
            each.close()
            if ended and drained:
                each.look()
            each.give_back()
        failures |= {each.topic: each.error for each in followed.values() if each.error is not None}
