"""Tables that several views read: who reads them, and how a definition that replaces another comes to share them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, View
from strandline.jobs.model.errors import SqlError
from strandline.state_store.commits import Head, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import forget
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import move_folder, remove_folder
from strandline.state_store.layout import LakeLayout, name_of
from strandline.state_store.paths import folders_in, is_folder

# The readers of shared tables: which a definition reads, and which nobody reads once it goes or gets another.


def shared_tables(definition: Definition, catalog: Catalog) -> frozenset[str]:
    """The tables of a definition's stages that other views may read as well."""
    if not isinstance(definition, View) or definition.maintenance.state != "shared":
        return frozenset()
    return frozenset(stage.table for stage in compiled(definition, catalog).stages if tables.is_shared(stage.table))


def unread(
    shared: Iterable[str], name: str, stays: Definition | None, catalog: Catalog, lake: LakeLayout
) -> frozenset[str]:
    """Those of some shared tables of a pipeline that nobody reads there, nor a definition that is to take a place.

    None of them when some plan cannot be made, as after a change of an input, or is not known: keeping a table is safe.

    Args:
        name: of the definition that they were for.
        stays: the definition of this name from now on; None: it goes.
    """
    left = frozenset(shared)
    if not left or catalog.broken:
        return frozenset()
    try:
        kept = [shared_tables(stays, catalog)] if stays is not None else []
        return left.difference(*kept, *_read_by_others(catalog.get(name), catalog, lake))
    except SqlError:
        return frozenset()


def remove_shared(names: Iterable[str], lake: LakeLayout) -> None:
    """Remove shared tables, with their dead letters. The lock of their pipeline must be held."""
    there = [name_of(path.name) for path in folders_in(lake.tables)]
    for name in names:
        for table in tables.owned_by(name, there):
            forget(lake, table)
            remove_folder(lake.table(table))


def _read_by_others(definition: Definition, catalog: Catalog, lake: LakeLayout) -> Iterator[frozenset[str]]:
    for other in catalog.pipeline(definition.pipeline):
        if other.name != definition.name:
            yield shared_tables(other, catalog)
    for intent in intents.begun_replacements_in(definition.pipeline, lake):
        if intent.name != definition.name and isinstance(intent.definition, View):
            yield shared_tables(intent.definition, catalog.supposing(intent.definition))


# The shared stages of a view's next definition: those that stand are read where they stand, others are made apart.
#
#     shared__a   stands: views read it   ──read, at the versions that it reflects──┐
#     shared__b   nobody has it yet       ──made apart, in v__stage_3───────────────┴──> v__standby
#                                             └── adopted before the swap: the folder becomes that of shared__b
#
# A table has one writer, whoever holds the lock of the pipeline. What is made apart is nobody else's until it is
# adopted under that lock, so neither a run nor another replacement can meet it half made.


def made_apart(definition: View, shared: Sequence[str], lake: LakeLayout) -> dict[str, str]:
    """{shared table: the table in which it is made apart}: what is there already, and what nobody has.

    Args:
        shared: the definition's shared tables, in the order of its plan.
    """
    return {name: own for name, own in _own(definition, shared) if _is_apart(*_heads(name, own, lake))}


def made_elsewhere(apart: Mapping[str, str], lake: LakeLayout) -> bool:
    """True if a table that was made apart stands by now, made by a run or by another replacement."""
    pairs = (_heads(name, own, lake) for name, own in apart.items())
    return any(there and ours and there.record.table != ours.record.table for there, ours in pairs)


def standing_in(apart: Mapping[str, str], lake: LakeLayout) -> LakeLayout:
    """The lake in which the tables that are made apart stand for those that they will be, dead letters too."""
    letters = {tables.dead_letters(name): tables.dead_letters(own) for name, own in apart.items()}
    return replace(lake, stand_ins=tuple({**apart, **letters}.items()))


def cut(standing: Iterable[str], lake: LakeLayout) -> dict[str, int]:
    """{table: version} that shared tables which stand have, and reflect: beside a run their inputs are ahead of them.

    An input of several has the newest version that one of them reflects: one whose rows do not change is not brought
    up to it by a commit, so it may say less than it reflects.
    """
    found: dict[str, int] = {}
    for name in standing:
        head = reader.head(lake.table(name))
        assert head is not None, "a table that stands has a head"
        said = {name: head.version, **head.record.versions}
        found |= {each: max(version, found.get(each, version)) for each, version in said.items()}
    return found


def at_one_cut(vector: Mapping[str, TableVersion], lake: LakeLayout) -> bool:
    """True if all that a vector names says the same of what it reads, by way of shared tables too."""
    said: dict[str, set[int]] = {}
    todo = [vector]
    while todo:
        for name, at in todo.pop().items():
            if at.version not in said.setdefault(name, set()) and tables.is_shared(name):
                todo.append(reader.record_at(lake.table(name), at.version).vector)
            said[name].add(at.version)
    return all(len(versions) == 1 for versions in said.values())


def adopt(apart: Mapping[str, str], lake: LakeLayout) -> None:
    """Make the tables that were made apart the shared ones; the pipeline's lock must be held.

    After a kill it is done again. An object store has no folders to rename: there the copy is whole once its log
    reaches as far, and only then is anything removed.
    """
    for name, own in apart.items():
        target = lake.table(name)
        if is_folder(target):
            remove_folder(target)
        forget(lake, own)
        move_folder(lake.table(own), target)
        failpoint("after-adoption")


def _own(definition: View, shared: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each shared table with the table that it is made in: numbered as the definition's own inner stages would be."""
    for number, name in enumerate(shared):
        yield name, tables.inner_stage(definition.name, definition.first_stage + number)


def _heads(name: str, own: str, lake: LakeLayout) -> tuple[Head | None, Head | None]:
    """The head of a shared table, unless nothing was ever computed for it, and of the one in which it is made."""
    there, ours = (reader.head(lake.table(each)) for each in (name, own))
    return (there if there is not None and there.record.epoch > 0 else None), ours


def _is_apart(there: Head | None, ours: Head | None) -> bool:
    if there is None or ours is None:
        return there is None
    copied = there.record.table == ours.record.table and there.version >= ours.version
    return not copied
