"""Several options as one value: a group is one parameter of a command, and to Typer each of its fields is an option.

Groups are declared as dataclasses are, and to a type checker that is what they are. They have no methods made for them,
which for some twenty groups would take 10 ms of every start.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_origin

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Return what leaves a class as it is: only a type checker wants to know."""
        return lambda made: made


Own = TypeVar("Own", bound="Group")
INPUT, MODEL, VIEW, OUTPUT = PANELS = ("Input", "Model", "View", "Output")  # the order of options in the help


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Group:
    """Options that are given as one value; what is annotated in a group are its fields."""

    if not TYPE_CHECKING:  # a type checker knows the fields, which have to be given if they have no default

        def __init__(self, **values: Any) -> None:
            vars(self).update(values)

    def but(self: Own, **changes: Any) -> Own:
        """Return the same with some values changed."""
        return type(self)(**{**vars(self), **changes})

    @classmethod
    def fields(cls) -> dict[str, Any]:
        """Return the annotations of the fields by name, those of the groups that it builds on first."""
        found: dict[str, Any] = {}
        for each in reversed(cls.__mro__):
            found |= inspect.get_annotations(each)
        return {name: annotation for name, annotation in found.items() if get_origin(annotation) is not ClassVar}


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command as Typer is to see it: with the fields of its groups in place of the groups, panel by panel."""
    declared = inspect.signature(command, eval_str=True).parameters.values()
    groups = {each.name: each.annotation for each in declared if _is_group(each.annotation)}

    def spread(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{each: given.pop(each) for each in group.fields()})
        return command(**given)

    parameters: list[inspect.Parameter] = []
    for each in declared:
        parameters += _spread(groups[each.name]) if each.name in groups else [each.replace(kind=each.KEYWORD_ONLY)]
    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__signature__ = inspect.Signature(sorted(parameters, key=_panel))  # type: ignore[attr-defined]
    return spread


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Group)


def _spread(group: type[Group]) -> list[inspect.Parameter]:
    """Return the fields of a group as the parameters of a command; a field without a default has to be given."""
    kind, none = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return [
        inspect.Parameter(name, kind, default=getattr(group, name, none), annotation=annotation)
        for name, annotation in group.fields().items()
    ]


def _panel(parameter: inspect.Parameter) -> int:
    """Return the place of a parameter's panel; arguments, which have none, come first."""
    declared = getattr(parameter.annotation, "__metadata__", ())
    panel = next((each.rich_help_panel for each in declared), None)
    return PANELS.index(panel) if panel else -1
