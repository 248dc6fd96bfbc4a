"""Places where the server of a Flower app starts rounds, found by following its grid through the source."""

import ast
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from tacit.integrations.flower.auditor.findings import FLOWER_DEFAULT, OriginCode, ValueOrigin
from tacit.integrations.flower.auditor.modules import (
    Function,
    SourceModule,
    SourceValue,
    find_bindings,
    is_number,
    is_use,
    unreadable_value,
)
from tacit.integrations.flower.auditor.source import ANY, DEEPEST, Arguments, Source

SECURE = {
    "SecAggPlusWorkflow": ("num_shares", "reconstruction_threshold"),
    "SecAggWorkflow": ("reconstruction_threshold",),
}
"""Flower's secure workflows, with the names of their positional arguments."""
MODS = {"SecAggPlusWorkflow": ("secaggplus_mod",), "SecAggWorkflow": ("secagg_mod", "secaggplus_mod")}
"""Mods that nodes need for each workflow."""
PLAIN, TACIT = "plain", "Tacit"
OUR_GRIDS = ("tacit.flower.grid", "tacit.integrations.flower.api.grid")
"""Full names of Tacit's grid."""
OUR_MODS = ("tacit.flower.mod", "tacit.integrations.flower.api.mod")
"""Full names of Tacit's mod."""
OUR_TRIALS = ("tacit.flower.trial", "tacit.integrations.flower.api.trial")
"""Full names of the function that creates a roster."""
TRIAL_ARGUMENTS = ("path", "protocol", "parties")
"""Arguments of that function that are no settings."""
SERVER_DECORATORS = ("main", "lifespan")
"""Decorators of a ServerApp."""
CLIENT_DECORATORS = ("train", "evaluate", "query", "lifespan")
"""Decorators of a ClientApp."""
SAMPLING = ("fraction_train", "fraction_evaluate", "min_train_nodes", "min_evaluate_nodes", "min_available_nodes")
"""Positional arguments of strategies."""
STRATEGIES = (
    *("FedAvg", "FedAvgM", "FedAdagrad", "FedAdam", "FedYogi", "FedProx"),
    *("FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan"),
)
"""Flower's strategies that sample nodes in the same way."""
RELIED_ON = (
    *("grid", "mod", "trial", "ServerApp", "ClientApp", "LegacyContext", "ServerConfig", "DefaultWorkflow"),
    *("secaggplus_mod", "secagg_mod", *SECURE, *STRATEGIES),
)
"""Attributes that an app must not set, because the object may be Flower's or Tacit's under another name."""
WORKFLOWS = ("fit_workflow", "evaluate_workflow")
"""Arguments of Flower's workflow that it gives the grid to."""
CHOOSING = (
    "__init__",
    "__new__",
    "start",
    "num_fit_clients",
    "configure_fit",
    "configure_train",
    "configure_evaluate",
    "initialize_parameters",
    "_construct_messages",
    "sample_nodes",
)
"""Methods that the app's own strategy must not define, so that it samples like Flower's."""
HARMLESS = ("get_node_ids", "run", "set_run")
"""Attributes of a grid that call no nodes."""
OURS_HARMLESS = (*HARMLESS, "hops", "last", "lost")
OWN = (
    *CHOOSING,
    *SAMPLING,
    *("fraction_fit", "min_fit_clients", "min_evaluate_clients", "min_available_clients"),
    *("__setattr__", "__getattr__", "__getattribute__", "__slots__"),
)
"""Names that the app's own strategy must not bind."""
NOISE_MODS = ("LocalDpMod", "fixedclipping_mod", "adaptiveclipping_mod")
"""Flower's mods for differential privacy."""
NOISE_STRATEGY = "DifferentialPrivacy"
"""How the names of Flower's strategies for differential privacy begin."""
NUMBERS = ("float", "int", "len", "bool")
"""Functions that return a number."""
REPEATED = (ast.For, ast.AsyncFor, ast.While, ast.comprehension, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
"""Syntax in which a call may happen more than once."""


@dataclass(frozen=True)
class RoundStart:
    """Place in the source where rounds are started."""

    how: str
    """Method of averaging: "plain", "Tacit", or the name of one of Flower's workflows."""
    origin: ValueOrigin
    """Place in the source, with the reason if the grid could not be followed further."""
    strategy: Arguments
    rounds: SourceValue
    workflow: Arguments
    elsewhere: ValueOrigin | None = None
    """Reason why Tacit's grid may have another roster than the configured one; None if there is none."""

    @property
    def has_initial_model(self) -> bool | None:
        """Whether the strategy is given an initial model; None if that is unknown."""
        written = self.strategy.get_expression("initial_parameters")
        if written is None:
            return False if self.strategy.open is None else None
        return not (isinstance(written[1], ast.Constant) and written[1].value is None)


@dataclass
class Trace:
    """Trace of a server's grid through the source, from the main function on."""

    source: Source
    starts: list[RoundStart] = field(default_factory=list)
    contexts: list[ast.arg] = field(default_factory=list)
    """Context parameters of main functions."""
    elsewhere: ValueOrigin | None = None
    """Place where Tacit's grid may be given another roster than the configured one; None if there is none."""

    @classmethod
    def of(cls, source: Source, module: SourceModule, name: str) -> "Trace":
        """Follows the grid of a ServerApp, by its name in a module."""
        trace = cls(source)
        found = find_bindings(module.tree, name)
        where, bound = source.follow_binding(module, found, name) if found else (module, None)
        parent = where.parents[bound] if bound is not None else None
        written = parent.value if isinstance(parent, ast.Assign | ast.AnnAssign) else None
        written = None if isinstance(parent, ast.Assign) and parent.targets != [bound] else written
        if patched := [each for each in RELIED_ON if each in source.changed]:
            trace._record_unclear(module.locate(module.tree, OriginCode.NAME_SET_IN_APP, patched[0]))
        if source.reflection:
            trace._record_unclear(source.reflection[0].locate(source.reflection[1], OriginCode.REFLECTION))
        if not isinstance(written, ast.Call) or source.flower_name(where, written.func) != "ServerApp":
            trace._record_unclear(where.locate(bound or where.tree, OriginCode.SERVER_UNKNOWN))
        elif written.args or written.keywords:
            trace._record_unclear(where.locate(written, OriginCode.SERVER_HAS_STRATEGY))
        app = bound.id if isinstance(bound, ast.Name) else ""
        if strays := find_stray_use(source, module, name, where, app, SERVER_DECORATORS):
            trace._record_unclear(strays[0].locate(strays[1], OriginCode.SERVER_NOT_FOLLOWED))
        for node in ast.walk(where.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == app:
                trace._follow_main(where, node)
        if not trace.starts:
            trace._record_unclear(where.locate(where.tree, OriginCode.NO_START))
        return trace

    def _follow_main(self, module: SourceModule, written: ast.Attribute) -> None:
        """Follows the grid into the main function of a ServerApp."""
        made = module.parents[written]
        function = module.parents[made] if isinstance(made, ast.Call) else made
        if written.attr == "lifespan":
            return
        if written.attr != "main" or not isinstance(function, Function):
            self._record_unclear(module.locate(written, OriginCode.SERVER_USE_NOT_FOLLOWED, written.attr))
        elif len(function.decorator_list) > 1:
            self._record_unclear(module.locate(function, OriginCode.OTHER_DECORATOR, function.name))
        else:
            given = [*function.args.posonlyargs, *function.args.args]
            self.contexts += given[1:2]
            self._follow_name(module, function, given[0].arg if given else "", ours=False, looped=False)

    # --- uses of a grid ----------------------------------------------------------------------------------------------

    def _follow_name(
        self, module: SourceModule, function: Function, name: str, *, ours: bool, looped: bool, depth: int = DEEPEST
    ) -> None:
        """Follows a grid, plain or Tacit's, through the uses of a name in a function."""
        names = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name]
        bound = [each for each in names if not isinstance(each.ctx, ast.Load)]
        after = 0
        if bound:
            parent = module.parents[bound[0]]
            wraps = isinstance(parent, ast.Assign) and parent in function.body and parent.targets == [bound[0]]
            if (
                len(bound) > 1
                or not wraps
                or not isinstance(parent, ast.Assign)
                or not self._wraps(module, parent.value)
            ):
                self._record_unclear(module.locate(bound[0], OriginCode.BOUND_AGAIN, name), ours)
                return
            after = parent.end_lineno or parent.lineno
        for use in names:
            if isinstance(use.ctx, ast.Load):
                now = ours or (0 < after < use.lineno)
                self._follow_use(module, function, use, ours=now, looped=looped, depth=depth)

    def _follow_use(
        self, module: SourceModule, function: Function, use: ast.expr, *, ours: bool, looped: bool, depth: int
    ) -> None:
        """Follows one use of a grid."""
        parent = module.parents[use]
        if isinstance(parent, ast.Attribute):
            if parent.attr not in (OURS_HARMLESS if ours else HARMLESS):
                self._record_unclear(module.locate(use, OriginCode.GRID_CALL, parent.attr), ours)
            return
        call = module.parents[parent] if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or use is call.func:
            if ours and isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
                self._follow_assignment(module, function, parent, looped=looped, depth=depth)
            else:
                self._record_unclear(module.locate(use, OriginCode.GRID_NOT_FOLLOWED), ours)
            return
        inside = takewhile(lambda each: each is not function, module.iter_parents(call))
        looped = looped or any(isinstance(each, REPEATED) for each in inside)
        if self._wraps(module, call):
            if not self._is_configured(module, call, use):
                self.elsewhere = module.locate(call, OriginCode.ROSTER_UNKNOWN)
            self._follow_use(module, function, call, ours=True, looped=looped, depth=depth)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "start":
            self._record_strategy(module, call, PLAIN if not ours else TACIT, looped)
        elif not ours and (workflow := self.source.find_call(module, call.func)) is not None:
            self._record_workflow(module, call, *workflow, looped=looped)
        elif not self._follow_call(module, call, use, ours=ours, looped=looped, depth=depth):
            self._record_unclear(module.locate(use, OriginCode.GRID_GIVEN_AWAY, ast.unparse(call.func)), ours)

    def _follow_assignment(
        self, module: SourceModule, function: Function, parent: ast.Assign, *, looped: bool, depth: int
    ) -> None:
        """Follows Tacit's grid through a new name; uses of the plain grid's name are followed anyway."""
        (target,) = parent.targets if len(parent.targets) == 1 else (None,)
        if not isinstance(target, ast.Name):
            self._record_unclear(module.locate(parent, OriginCode.GRID_NOT_FOLLOWED), True)
        elif target.id not in {each.arg for each in function.args.args}:
            if len(find_bindings(function, target.id)) > 1:
                # It cannot be the plain grid, whose uses are all followed.
                self._record_unclear(module.locate(parent, OriginCode.BOUND_AGAIN, target.id), True)
                return
            for use in ast.walk(function):
                if is_use(use, target.id):
                    self._follow_use(module, function, use, ours=True, looped=looped, depth=depth)

    def _follow_call(
        self, module: SourceModule, call: ast.Call, use: ast.expr, *, ours: bool, looped: bool, depth: int
    ) -> bool:
        """Follows a grid into a function of the app; returns whether that was possible."""
        found = self.source.lookup_name(module, call.func)
        if found is None or not isinstance(found[1], Function) or not depth:
            return False
        where, function = found[0], found[1]
        if any(isinstance(each, ast.Starred) for each in call.args) or function.decorator_list:
            return False
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        given = dict(zip(names, call.args, strict=False))
        given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
        (name,) = [name for name, each in given.items() if each is use] or [""]
        if not name:
            return False
        self._follow_name(where, function, name, ours=ours, looped=looped, depth=depth - 1)
        return True

    def _wraps(self, module: SourceModule, written: ast.expr) -> bool:
        return isinstance(written, ast.Call) and self.source.full_name(module, written.func) in OUR_GRIDS

    def _is_configured(self, module: SourceModule, call: ast.Call, use: ast.expr) -> bool:
        """Returns whether a grid is wrapped with the context of a main function."""
        given = Arguments(self.source, module, call, ("grid", "context"))
        (_, grid), (_, context) = (given.get_expression(name) or (module, None) for name in ("grid", "context"))
        found = self.source.lookup_name(module, context)
        return found is not None and found[1] in self.contexts and grid is use and not given.open

    # --- starts of rounds --------------------------------------------------------------------------------------------

    def _record_unclear(self, why: ValueOrigin, ours: bool = False) -> None:
        """Records a use that cannot be followed; with a plain grid it counts as plain averaging, the worst case."""
        unknown, none = Arguments.unknown(self.source, why), Arguments(self.source)
        self.starts.append(RoundStart(TACIT if ours else PLAIN, why, unknown, unreadable_value(why), none))

    def _record_strategy(self, module: SourceModule, call: ast.Call, how: str, looped: bool) -> None:
        """Records a strategy that is started on a grid."""
        given = Arguments(self.source, module, call, ("grid", "initial_arrays", "num_rounds"))
        written = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        repeated = unreadable_value(module.locate(call, OriginCode.REPEATED_CALL))
        rounds = repeated if looped else given("num_rounds")
        rounds = rounds if rounds.given else SourceValue(3, FLOWER_DEFAULT)
        strategy, none = self._read_strategy(module, written), Arguments(self.source)
        self.starts.append(RoundStart(how, module.locate(call), strategy, rounds, none))

    def _record_workflow(
        self, module: SourceModule, call: ast.Call, where: SourceModule, made: ast.Call, *, looped: bool
    ) -> None:
        """Records a workflow that is given a grid."""
        source, origin = self.source, module.locate(call)
        if source.flower_name(where, made.func) != "DefaultWorkflow":
            self._record_unclear(module.locate(call, OriginCode.GRID_GIVEN_AWAY, ast.unparse(call.func)))
            return
        given = Arguments(source, where, made, WORKFLOWS)
        fit, evaluate = (given.get_expression(name) for name in WORKFLOWS)
        kept = all(map(source.is_kept, (call.func, *call.args[1:], *(fit[1:] if fit is not None else ()))))
        if given.open or evaluate is not None or {ANY, *WORKFLOWS} & source.changed or not kept:
            self._record_unclear(module.locate(call, OriginCode.WORKFLOW_UNKNOWN))
            return
        secure = source.find_call(*fit) if fit is not None else None
        how = source.flower_name(secure[0], secure[1].func) if secure is not None else ""
        if fit is not None and how not in SECURE:
            origin = fit[0].quote(fit[1], OriginCode.NOT_SECAGG)
        workflow = Arguments(source)
        if secure is not None and how in SECURE:
            workflow = Arguments(source, *secure, SECURE[how])
        strategy, rounds = self._read_legacy_context(module, call)
        if looped:
            rounds = unreadable_value(module.locate(call, OriginCode.REPEATED_CALL))
        self.starts.append(RoundStart(how if how in SECURE else PLAIN, origin, strategy, rounds, workflow))

    def _read_legacy_context(self, module: SourceModule, call: ast.Call) -> tuple[Arguments, SourceValue]:
        """Returns the strategy's arguments and the number of rounds from the context of a workflow."""
        source = self.source
        context = None
        if len(call.args) > 1:
            # Flower's own example calls the new context by the name of the parameter that it is made from.
            rebound = source.resolve_rebound(module, call.args[1])
            context = source.find_call(*(rebound or (module, call.args[1])))
        if context is None or source.flower_name(context[0], context[1].func) != "LegacyContext":
            unknown = module.locate(call, OriginCode.CONTEXT_UNKNOWN)
            return Arguments.unknown(source, unknown), unreadable_value(unknown)
        names = ("context", "config", "strategy", "client_manager")
        given = Arguments(source, *context, names)
        manager, strategy, config = (given.get_expression(name) for name in ("client_manager", "strategy", "config"))
        changed = [name for name in names if {ANY, name} & source.changed]
        why = given.open or (ValueOrigin(OriginCode.SET_LATER, name=changed[0]) if changed else None)
        if manager is not None or why:
            managed = module.locate(call, OriginCode.EXPRESSION, "client_manager")
            sampled = Arguments.unknown(source, why or managed)
        else:
            sampled = self._read_strategy(*strategy) if strategy is not None else Arguments(source)
        if config is None or why:
            return sampled, unreadable_value(why) if why is not None else SourceValue(1, FLOWER_DEFAULT)
        made = source.find_call(*config)
        if made is None or source.flower_name(made[0], made[1].func) != "ServerConfig":
            return sampled, unreadable_value(config[0].quote(config[1]))
        rounds = Arguments(source, *made, ("num_rounds",))("num_rounds")
        return sampled, rounds if rounds.given else SourceValue(1, FLOWER_DEFAULT)

    def _read_strategy(self, module: SourceModule, written: ast.expr) -> Arguments:
        """Returns the arguments of a strategy that determine which nodes it asks."""
        made = self.source.find_call(module, written)
        changed = {ANY, *CHOOSING} & self.source.changed
        kept = self.source.is_kept(written)
        if made is None or changed or not kept or not self._samples_like_flower(made[0], made[1].func, DEEPEST):
            return Arguments.unknown(self.source, module.quote(written))
        return Arguments(self.source, *made, SAMPLING)

    def _samples_like_flower(self, module: SourceModule, written: ast.expr, depth: int) -> bool:
        """Returns whether a class samples nodes like Flower's strategies."""
        if self.source.flower_name(module, written) in STRATEGIES:
            return True
        found = self.source.lookup_name(module, written)
        if found is None or not isinstance(found[1], ast.ClassDef) or not depth:
            return False
        made = found[1]
        return (
            not any(find_bindings(made, name) for name in OWN)
            and not made.decorator_list
            and not made.keywords
            and len(made.bases) == 1
            and self._samples_like_flower(found[0], made.bases[0], depth - 1)
        )


def has_mod(source: Source, module: SourceModule, app: str, names: tuple[str, ...]) -> bool:
    """Returns whether a ClientApp is certain to have one of the named mods."""
    found = find_bindings(module.tree, app)
    where, bound = source.follow_binding(module, found, app) if found else (module, None)
    made = source.find_call(where, bound) if isinstance(bound, ast.Name) else None
    if made is None or source.flower_name(made[0], made[1].func) != "ClientApp":
        return False
    if {*RELIED_ON} & source.changed or source.reflection or not isinstance(bound, ast.Name):
        return False
    if find_stray_use(source, module, app, where, bound.id, CLIENT_DECORATORS):
        return False
    mods = Arguments(source, *made, ("client_fn", "mods")).get_expression("mods")
    listed = source.resolve_name(*mods) if mods is not None and source.is_unchanged(*mods) else None
    if listed is None or not isinstance(listed[1], ast.List | ast.Tuple):
        return False
    made_by = [each.func if isinstance(each, ast.Call) else each for each in listed[1].elts]
    full = [source.full_name(listed[0], each) or "" for each in made_by]
    wanted = [name in names or (name.startswith("flwr.") and name.rpartition(".")[2] in names) for name in full]
    # The app's own mods see the answers too, so there must be none.
    return any(wanted) and all(is_it or name.startswith("flwr.") for is_it, name in zip(wanted, full, strict=True))


def find_flower_noise(source: Source) -> tuple[str, ...]:
    """Returns the names of Flower's mods and strategies for differential privacy that an app uses."""
    names = {
        source.flower_name(module, node) for module, node in source.walk() if isinstance(node, ast.Name | ast.Attribute)
    }
    return tuple(sorted(name for name in names if name in NOISE_MODS or name.startswith(NOISE_STRATEGY)))


def find_unclear_metrics(source: Source) -> ValueOrigin | None:
    """Returns where a client's `fit` returns metrics that need not be numbers; None if no such place is seen."""
    for module, node in source.walk():
        if not isinstance(node, Function) or node.name != "fit" or not isinstance(module.parents[node], ast.ClassDef):
            continue
        for each in ast.walk(node):
            if isinstance(each, ast.Return) and next(module.iter_scopes(each), None) is node:
                given = each.value.elts if isinstance(each.value, ast.Tuple) else []
                if len(given) != 3 or not _is_table_of_numbers(source, module, given[2]):
                    what = given[2] if len(given) == 3 else each.value
                    where = module.locate(each, OriginCode.METRICS, "what fit returns")
                    return where if what is None else module.quote(what, OriginCode.METRICS)
    return None


def _is_table_of_numbers(source: Source, module: SourceModule, written: ast.expr) -> bool:
    """Returns whether an expression is a dictionary in which everything is certain to be a number."""
    return isinstance(written, ast.Dict) and all(
        isinstance(key, ast.Constant)
        and (
            (isinstance(value, ast.Constant) and is_number(value.value))
            or (isinstance(value, ast.Call) and source.full_name(module, value.func) in NUMBERS)
        )
        for key, value in zip(written.keys, written.values, strict=True)
    )


def find_stray_use(
    source: Source, entry: SourceModule, name: str, where: SourceModule, app: str, known: tuple[str, ...]
) -> tuple[SourceModule, ast.AST] | None:
    """Returns a use of an app object other than decorating its functions; None if there is none.

    Args:
        source: the source of the app.
        entry: the module that the pyproject.toml names.
        name: the name of the object in that module.
        where: the module that creates the object.
        app: the name of the object in that module.
        known: the decorators that are allowed.
    """
    names = {entry.name: name, where.name: app}
    for module, node in source.walk():
        if module.name in names and is_use(node, names[module.name]):
            if module is not where or not _decorates(module, module.parents[node], known):
                return module, node
        elif isinstance(node, ast.Attribute) and node.attr == where.name.rpartition(".")[2]:
            return module, node
        elif isinstance(node, ast.alias):
            parent = module.parents[node]
            origin = source.origin_of(module, parent) if isinstance(parent, ast.ImportFrom) else ""
            full = f"{origin}.{node.name}" if origin else node.name
            is_entry = module is entry and node.name == app and (node.asname or node.name) == name
            if full == where.name or (origin == where.name and node.name in (app, "*") and not is_entry):
                return module, node
    return None


def _decorates(module: SourceModule, written: ast.AST, known: tuple[str, ...]) -> bool:
    """Returns whether an attribute of an app object is called, without mods, to decorate a function."""
    call = module.parents.get(written)
    function = module.parents.get(call) if call is not None else None
    return (
        isinstance(written, ast.Attribute)
        and written.attr in known
        and isinstance(call, ast.Call)
        and not call.keywords
        and isinstance(function, Function)
        and call in function.decorator_list
    )


def find_trials(source: Source, protocol: Any) -> tuple[ValueOrigin | None, bool]:
    """Returns where the source creates a roster, if anywhere, and whether with settings or another protocol."""
    made, has_settings = None, False
    for module, node in source.walk():
        if isinstance(node, ast.Name | ast.Attribute) and source.full_name(module, node) in OUR_TRIALS:
            call, made = module.parents[node], module.locate(node, OriginCode.ROSTER_CREATED)
            if not isinstance(call, ast.Call) or call.func is not node:
                return made, True
            given = Arguments(source, module, call, TRIAL_ARGUMENTS)
            how = source.resolve_name(*(given.get_expression("protocol") or (module, call)))
            other = how is not None and isinstance(how[1], ast.Constant) and how[1].value != protocol
            named = {each.arg for each in call.keywords}
            has_settings |= other or given.open is not None or not named <= {*TRIAL_ARGUMENTS}
    return made, has_settings
