"""What people call models: references, ids, aliases, and patterns of the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from clawkit.config.modelref import ModelRef, normalize_provider, parse_ref
from clawkit.config.sections.agents import AgentCommon
from clawkit.errors import ConfigError, Issue
from clawkit.models.providers import Service
from clawkit.policy.match import Glob, unset_variable
from clawkit.text import nearest

_BUILT_IN = ModelRef("clawkit", "operator")
"""The model that needs no provider."""
_MAX_SHOWN = 80
_HINT = "Write it as provider/model; `clawkit models list --all` shows all"


class Names:
    """Finds models by what they are called. `layers` are agent settings, the nearest first."""

    def __init__(
        self,
        services: Mapping[str, Service],
        layers: Sequence[tuple[str, AgentCommon]],
        has_credential: Callable[[str], bool],
        *,
        only_listed: bool,
    ) -> None:
        """With `only_listed` there are no models but those that are configured."""
        self._services = services
        self._layers = layers
        self._has_credential = has_credential
        self._only_listed = only_listed

    def find(self, text: str) -> ModelRef:
        """The one model that `text` means. Raises ConfigError, with what may have been meant."""
        text = text.strip()
        if not text:
            raise _fault("a model is named by an empty text")
        if text.lower() == str(_BUILT_IN):
            return _BUILT_IN
        found = self._by_alias(text) or self._by_provider(text) or self._by_id(text)
        if found is None:
            raise self._unknown(text)
        return found

    def _by_alias(self, text: str) -> ModelRef | None:
        wanted = text.casefold()
        for key, layer in self._layers:
            found = {
                self._entry_ref(key, name): None
                for name, entry in layer.models.items()
                if entry.alias and entry.alias.strip().casefold() == wanted
            }
            if len(found) > 1:
                names = " and ".join(map(str, found))
                raise _fault(f"the alias {text!r} means both {names}", setting_of(key))
            if found:
                return next(iter(found))
        return None

    def _entry_ref(self, key: str, name: str) -> ModelRef:
        ref = self._by_provider(name) or self._by_id(name)
        if ref is None:
            raise self._unknown(name, f"{setting_of(key)}[{name!r}]")
        return ref

    def _by_provider(self, text: str) -> ModelRef | None:
        head, slash, _ = text.partition("/")
        if not slash or normalize_provider(head) not in self._services:
            return None
        try:
            ref = parse_ref(text)
        except ValueError as error:
            raise _fault(str(error)) from None
        service = self._services[ref.provider]
        if ref.id not in service.models:
            # An id in another case is the one that is listed.
            rows = service.known.models if service.known and not self._only_listed else ()
            names = [*service.models, *(row.id for row in rows)]
            same = {name for name in names if name.casefold() == ref.id.casefold()}
            if len(same) == 1:
                ref = ModelRef(ref.provider, same.pop())
        self.service(ref)
        return ref

    def _by_id(self, text: str) -> ModelRef | None:
        for fold in (str, str.casefold):
            wanted = fold(text)
            listed = [ref for ref in self._listed() if fold(ref.id) == wanted]
            usable = [ref for ref in listed if self._has_credential(ref.provider)]
            if len(usable or listed) > 1:
                names = " and ".join(map(str, usable or listed))
                raise _fault(f"{text!r} may be {names}; name the provider too")
            if listed:
                return (usable or listed)[0]
            known = [ref for ref in self._known() if fold(ref.id) == wanted]
            usable = [ref for ref in known if self._has_credential(ref.provider)]
            if known:
                return (usable or known)[0]
        return None

    def _listed(self) -> Iterator[ModelRef]:
        for service in self._services.values():
            yield from (ModelRef(service.id, name) for name in service.models)

    def _known(self) -> Iterator[ModelRef]:
        for service in () if self._only_listed else self._services.values():
            if service.known:
                yield from (ModelRef(service.id, row.id) for row in service.known.models)

    def service(self, ref: ModelRef) -> Service:
        """The provider of a model that may be asked for there. Raises ConfigError."""
        service = self._services.get(ref.provider)
        if service is None:
            raise self._unknown(str(ref))
        if ref.id in service.models:
            return service
        if service.known is None and not service.models:
            problem = f"is empty: {service.id!r} is not a provider clawkit knows"
            raise _fault(problem, service.at("models"), "List its models, each with its id")
        if service.known is None or self._only_listed:
            close = nearest(ref.id, service.models) or list(service.models)[:3]
            problem = f"the provider {service.id!r} has no model {_short(ref.id)}"
            raise _fault(problem, service.at("models"), f"Add it there, or use {_or(close)}")
        return service

    def _unknown(self, text: str, key: str = "") -> ConfigError:
        head, slash, _ = text.partition("/")
        if slash:
            close = nearest(normalize_provider(head), self._services)
            problem = f"there is no provider {_short(head)} for the model {_short(text)}"
        else:
            everything = [*self._listed(), *self._known()]
            by_id = {ref.id: str(ref) for ref in reversed(everything)}
            aliases = [alias for _, layer in self._layers for alias in _aliases(layer)]
            close = [by_id.get(name, name) for name in nearest(text, [*by_id, *aliases])]
            problem = f"there is no model and no alias {_short(text)}"
        hint = f"Did you mean {_or(close)}?" if close else _HINT
        return _fault(problem, key, hint)

    def means(self, text: str, ref: ModelRef) -> bool:
        """Whether a key of an agent's `models` is this model."""
        try:
            return parse_ref(text) in (ref, ModelRef("", ref.id))
        except ValueError:
            return text == ref.id

    def aliases_of(self, ref: ModelRef) -> tuple[str, ...]:
        found = {
            entry.alias: None
            for _, layer in self._layers
            for text, entry in layer.models.items()
            if entry.alias and self.means(text, ref)
        }
        return tuple(found)

    def is_allowed(self, ref: ModelRef) -> bool:
        """Whether the nearest policy lets a person choose this model."""
        for key, layer in self._layers:
            policy = layer.model_policy
            if policy is not None and policy.allow is not None:
                place = f"{key}.modelPolicy.allow"
                return any(self._fits(entry, ref, place) for entry in policy.allow)
        return True

    def _fits(self, entry: str, ref: ModelRef, key: str) -> bool:
        entry = entry.strip()
        if problem := unset_variable(entry):
            raise _fault(problem, key)
        if not entry:
            return False
        head, slash, rest = entry.partition("/")
        if slash:
            entry = f"{normalize_provider(head)}/{rest}"
        if "*" in entry:
            text = str(ref) if slash else ref.id
            return Glob(entry.casefold()).match(text.casefold())
        folded = entry.casefold()
        aliases = (alias.casefold() for alias in self.aliases_of(ref))
        return folded in (str(ref).casefold(), ref.id.casefold(), *aliases)


def setting_of(key: str) -> str:
    """Where the models of a layer of agent settings are."""
    return f"{key}.models"


def _aliases(layer: AgentCommon) -> list[str]:
    return [entry.alias for entry in layer.models.values() if entry.alias]


def _fault(problem: str, key: str = "", hint: str = "") -> ConfigError:
    return ConfigError([Issue(key, problem, hint=hint)])


def _short(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


def _or(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))
