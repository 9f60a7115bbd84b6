"""The errors of changelog topics: what keeps a view's changes from its topic, or its rows from coming back from there.

PublishError
├── TopicTaken                publish.topic_taken         stop
├── TopicUnfit                publish.topic_unfit         stop
├── PublisherFenced           publish.fenced              stop
├── NeverPublished            publish.never               stop
├── TopicMoved                publish.topic_moved         retry
└── TopicDiffers              publish.topic_differs       restore
"""

from __future__ import annotations

from strandline.state_store.errors import Action, StrandlineError


class PublishError(StrandlineError):
    """Base of the errors of changelog topics."""

    code = "publish"


class TopicTaken(PublishError):
    """The topic has records that are not the view's: what vanished could not be told from what others wrote. Nothing
    was written. Stop: give the view a topic of its own."""

    code = "publish.topic_taken"


class TopicUnfit(PublishError):
    """The topic is not compacted: it would forget rows that have not changed for a while. Stop: alter its
    configuration, or give the view another topic."""

    code = "publish.topic_unfit"


class PublisherFenced(PublishError):
    """Another publisher of the topic has begun since. What this one had not committed is not there. Stop: one goes on
    alone; where the other is not wanted, end it and start this one again."""

    code = "publish.fenced"


class NeverPublished(PublishError):
    """The topic holds no version of the view. Stop: publish it first."""

    code = "publish.never"


class TopicMoved(PublishError):
    """The topic was written to while it was read. Retry."""

    code = "publish.topic_moved"
    action = Action.RETRY


class TopicDiffers(PublishError):
    """What the topic adds up to is not the version that it says it holds: records were removed, or others were added.
    Restore: publish the difference to the table, or rebuild the view from its inputs."""

    code = "publish.topic_differs"
    action = Action.RESTORE
