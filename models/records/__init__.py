"""The records on the wire: events in; predictions, outcomes and dead letters out; questions and answers.

Times are Unix seconds (UTC), durations seconds, memory bytes. Every record carries the format's version `v`. Unknown
fields are ignored, so a later writer does not break an earlier reader. `queuecast schema` prints the format.
"""

from models.records.bundle import (
    MOST_BYTES,
    MOST_EVENTS,
    AnyEvent,
    AnyJobEvent,
    Bundle,
    RawBundle,
    bundled,
    is_told,
    without_first,
)
from models.records.capacity import Capacity, Limit, Partition, Pool, Reservation
from models.records.events import (
    Alter,
    Cancel,
    End,
    Event,
    ExpectedStart,
    Hold,
    JobEvent,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
)
from models.records.fields import VERSION, Bytes, Count, Counts, JobKey, Name, Names, Seconds, Size, Text, Time, Version
from models.records.notices import Notice
from models.records.operations import (
    AnyOperation,
    BeginAnew,
    DoneOperation,
    ForgetJob,
    Operation,
    Rebuild,
    SetCapacity,
    UsePrior,
)
from models.records.predictions import DeadLetter, LiveState, Outcome, Prediction, StandingEstimate
from models.records.questions import (
    BUSY,
    LATER,
    QUOTA,
    UNKNOWN_SITE,
    Alternative,
    Answer,
    AnswerAccuracy,
    AnyAnswer,
    AnyQuestion,
    HourState,
    JobAnswer,
    JobQuestion,
    JobsAnswer,
    JobsQuestion,
    LeftJobs,
    LiveJob,
    MethodAccuracy,
    NoAnswer,
    PartitionState,
    Question,
    SiteAnswer,
    SitePast,
    SiteQuestion,
    ToldStart,
    WaitAnswer,
    WaitQuestion,
    WeekAccuracy,
    Why,
    WorkerState,
)
