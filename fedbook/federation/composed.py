"""Composition through messages: any compressor and any privacy mechanism on the uploads of any horizontal algorithm.

An algorithm says what goes up; a :class:`Chain` says what happens to it on the way. The order decides what is promised.
C: the clip's bound. d: components of an upload. z: the deviation of the noise over the sensitivity.

* clip, noise, quantise: the noised upload is already private, and what is computed from it alone costs nothing
  (post-processing). Epsilon is that of clip and noise, whatever the codec: nothing is entered for it.
* clip, quantise, sum, noise by the server: the noise hides the *quantised* update. Rounding can lengthen it, to
  C' = C + sqrt(d) step / 2 at worst (:meth:`UniformScalar.largest_error`, attained). The release is entered with C' for
  C: the multiplier z becomes z C / C', and the run costs more. A second, shorter clip before the codec brings C' back.
* clip, a share of the noise each, quantise, sum: a sum of rounded messages is no function of the noised sum. What is
  left is each client's own share (post-processing again, of each message apart), and that is what is entered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import COMPRESSORS, AnyWidth, Summable, UniformScalar, UpperTriangle
from fedbook.compression import Codec as CompressorCodec
from fedbook.compression.messages import LARGEST
from fedbook.federation.cohort import Cohort
from fedbook.federation.exchange import Chain, Codec, Diverged, Exchange, Local, Reply, Round, Uploads
from fedbook.federation.loop import Algorithm, Turn
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, flatten, leaves, tree_map
from fedbook.privacy.mechanisms import ClientGaussian, Clip, sum_sensitivity
from fedbook.privacy.release import Release
from fedbook.settings import Settings, other_than, setting
from fedbook.wire import Encoded, Wire

EVERYTHING = "*"
SUBTRACTS_OWN = "clients take off from the average what they sent, which must arrive as it was sent"


class Compression(Settings):
    """What the uploads of an algorithm are compressed with on their way: all that are more than one number.

    Of trained parameters the change from what was sent down is compressed. A sum needs the scalar quantiser after a
    clip; where the server adds noise to it, the clip is made shorter, so that epsilon stays: :class:`Composed`, keep.
    """

    compressor: str = setting("none", None, "of what goes up (see fedbook.compression)", "none: as it is",
                              choices=tuple(COMPRESSORS))  # fmt: skip
    bits: int = setting(
        8, "b", "of a number that goes up, at most 16 for scalar and 8 for hex; sparse compressors keep b/32 of them",
        minimum=1, maximum=32, needs={"compressor": other_than("none")},
    )  # fmt: skip

    def cross_check(self) -> None:
        """As many bits as the quantiser can use. Raises: ValueError."""
        arguments.integer("bits", self.bits, 1, COMPRESSORS[self.compressor].most_bits)

    def around(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm with these uploads. Raises: ValueError (what the uploads of this algorithm cannot pass)."""
        if self.compressor == "none":
            return algorithm
        clip = getattr(algorithm, "clip_of_sums", None)
        if clip is not None and (self.compressor != "scalar" or math.isinf(clip)):
            allowed = "none, as the server sees only the sum of updates that no clip bounds"
            if not math.isinf(clip):
                allowed = "scalar or none: the server sees only the sum, and the codes of others do not add up"
            raise arguments.wrong(ValueError, "compressor", self.compressor, allowed)
        if EVERYTHING in _subtracted(algorithm):
            raise arguments.wrong(ValueError, "compressor", self.compressor, f"none, as {SUBTRACTS_OWN}")
        chain = Chain(codec=CompressorCodec(AnyWidth(self.compressor, self.bits)))
        return Composed(algorithm, {EVERYTHING: chain}, keep=True)


class Composed:
    """``algorithm`` with ``chains`` on its uploads; all else (name, settings, attributes) is the algorithm's.

    ``chains``: by the name of an upload, "EXCHANGE/NAME" for one exchange only, or "*" for all that have no wire format
    of their own and are more than one number. Transforms come after the algorithm's own and before the codec.
    ``changes``: uploads that are a new version of what came down under the same name (trained parameters): of them the
    difference passes the chain, and the server puts it back on what it sent. A clip, a range or the largest k are of
    the difference then.
    A chain with noise (a Clip, then ClientGaussian) protects each upload by itself: the release follows from the two,
    for one client under ``adjacency``, without amplification. All that the clients send needs noise then, but for what
    ``public`` names; what the algorithm declared as leaving in clear does not any more.
    A release whose noise comes after the uploads covers those of one exchange, each bounded by a Clip in its chain.
    Under ``reveal="sum"`` a codec must be a scalar quantiser, whose codes add up; one without a fixed range gets that
    of the clip before it, [-C, C], and the codes the width of their sum (:class:`Summable`). ``keep``: the algorithm's
    clip is followed by one so much shorter that C' is the old C: a release whose noise comes later stays what it was.

    Raises: TypeError, ValueError; while it runs for an upload that there is not, a second wire format, a second noise.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        chains: Mapping[str, Chain],
        *,
        changes: Sequence[str] = ("theta",),
        public: Sequence[str] = (),
        adjacency: str = "replace_one",
        keep: bool = False,
    ):
        if not isinstance(chains, Mapping):
            raise arguments.wrong(TypeError, "chains", chains, "a mapping from the names of uploads to Chain")
        for name, chain in chains.items():
            _check(name, chain)
        for word, names in (("changes", changes), ("public", public)):
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise arguments.wrong(TypeError, word, names, "a list of names of uploads")
        own = _subtracted(algorithm)
        spoilt = [key for key in chains if EVERYTHING in own or key.rpartition("/")[2] in own]
        if spoilt:
            raise arguments.wrong(ValueError, "chains", spoilt, f"none for these, as {SUBTRACTS_OWN}")
        arguments.one_of("adjacency", adjacency, ("replace_one", "zero_out"))
        self.algorithm, self.chains, self.adjacency = algorithm, dict(chains), adjacency
        self.changes, self.public, self.keep = tuple(changes), tuple(public), arguments.flag("keep", keep)

    def __getattr__(self, name: str) -> Any:
        if name == "algorithm":  # while it is copied it has none yet
            raise AttributeError(name)
        return getattr(self.algorithm, name)

    def configuration(self) -> dict[str, Any]:
        """The algorithm's, and what its uploads pass."""
        return self.algorithm.configuration() | {"composed": self.composition}

    @property
    def composition(self) -> dict[str, Any]:
        """What the uploads pass, in words."""
        chains = {name: repr(chain) for name, chain in self.chains.items()}
        composed = {"chains": chains, "changes": list(self.changes), "public": list(self.public)}
        return composed | {"adjacency": self.adjacency, "keep": self.keep}

    @property
    def noised(self) -> bool:
        """Whether a chain adds noise."""
        return any(_noise(chain.transforms) for chain in self.chains.values())

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """The algorithm's start. Raises: ValueError (noise for one client that holds everything)."""
        if self.noised and federation.num_clients < 2:
            raise arguments.wrong(ValueError, "clients", 1, "at least 2 where each adds noise to what it sends")
        if self.noised:
            for what in self.public:
                turn.assume_public(f"the clients' uploads {what!r}")
        heard = _Heard.of(turn, self.noised)
        state = self.algorithm.start(federation, heard)
        self._enter(heard, [])
        return state

    def setup(self, server: dict[str, Tree], turn: Turn) -> Round:
        """The algorithm's set-up through the chains."""
        return self._through(turn, lambda heard: self.algorithm.setup(server, heard))

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """The algorithm's round through the chains."""
        return self._through(turn, lambda heard: self.algorithm.round(server, heard))

    def _through(self, turn: Turn, begin: Callable[[Turn], Round]) -> Round:
        heard, sent, matched, delivered = _Heard.of(turn, self.noised), set(), set(), False
        steps, uploads, passed = begin(heard), None, []
        while True:
            try:
                exchange = steps.send(uploads)
            except StopIteration as stop:
                server = stop.value
                break
            chains = _Chains(self, exchange, turn.num_clients)
            passed.append(chains)
            self._enter(heard, passed)
            for _, release, cohort in chains.releases():
                turn.release(release, cohort)
            uploads = yield chains.around()
            delivered |= not isinstance(uploads, Uploads) or bool(uploads.parts)
            names = chains.sent(uploads.names)
            sent |= names
            matched |= {key for name in names for key in chains.keys_of(name)}
            unsent = {name for name, _, _ in chains.releases()} - names
            if unsent and delivered:
                allowed = f'uploads of the exchange {exchange.name!r}, {sorted(names)}, or "EXCHANGE/NAME" for another'
                raise arguments.wrong(ValueError, "chains", sorted(unsent), allowed)
            if isinstance(uploads, Uploads):
                uploads = chains.put_back(uploads)
        self._enter(heard, passed)
        missing = sorted(set(self.chains) - matched - {EVERYTHING})
        if missing and turn.t == 0 and delivered:
            raise arguments.wrong(ValueError, "chains", missing, f"uploads of the first round: {sorted(sent)}")
        return server

    def _enter(self, heard: _Heard, passed: Sequence[_Chains]) -> None:
        """Enter what the algorithm released, restated for what the messages of this round pass, the next one too."""
        for release, cohort in heard.held:
            if self.noised:
                allowed = "chains without noise: this algorithm adds and accounts its own"
                raise arguments.wrong(ValueError, "chains", sorted(self.chains), allowed)
            for chains in passed:
                release, cohort = chains.restated(release, cohort)
            heard.inner.release(release, cohort)
        heard.held.clear()


def layers(algorithm: Algorithm) -> tuple[Algorithm, list[Composed]]:
    """The algorithm itself, and what is composed around it, the outermost first."""
    around = []
    while isinstance(algorithm, Composed):
        around.append(algorithm)
        algorithm = algorithm.algorithm
    return algorithm, around


def composed(around: Sequence[Composed], exchange: Exchange, num_clients: int) -> Exchange:
    """An exchange of the algorithm itself with all that is composed ``around`` it; for engines."""
    for one in reversed(around):
        exchange = _Chains(one, exchange, num_clients).around()
    return exchange


def taken_apart(exchange: Exchange) -> tuple[Exchange, list[Composed]]:
    """The inverse of :func:`composed`."""
    around = []
    while isinstance(exchange.work, _Work):
        around.append(exchange.work.chains.composed)
        exchange = exchange.work.chains.exchange
    return exchange, around


class _Chains(Mapping):
    """The chains of one exchange: the algorithm's own, and for each name that is sent what was composed."""

    def __init__(self, composed: Composed, exchange: Exchange, num_clients: int):
        self.composed, self.exchange, self.num_clients = composed, exchange, num_clients
        self.seen: set[str] = set()  # what was sent
        self._before: set[str] | None = None  # what a release was restated for before anything was sent
        self._merged: dict[str, Chain | None] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.exchange.chain)

    def __len__(self) -> int:
        return len(self.exchange.chain)

    def __getitem__(self, name: str) -> Chain:
        if name not in self._merged:
            self._merged[name] = self._of(name)
        if self._merged[name] is None:
            raise KeyError(name)
        return self._merged[name]

    def keys_of(self, name: str) -> list[str]:
        """The words in ``chains`` that mean the upload ``name`` of this exchange."""
        return [key for key in (f"{self.exchange.name}/{name}", name, EVERYTHING) if key in self.composed.chains]

    def _of(self, name: str) -> Chain | None:
        own, keys = self.exchange.chain.get(name), self.keys_of(name)
        passed_over = (own is not None and own.codec is not None) or name in _subtracted(self.composed.algorithm)
        if not keys or (keys[0] == EVERYTHING and passed_over):
            return own
        own, extra = own or Chain(), self.composed.chains[keys[0]]
        if own.codec is not None and extra.codec is not None:
            allowed = f"a chain without a codec: this upload has a wire format of its own, {own.codec}"
            raise arguments.wrong(ValueError, f"chains[{keys[0]!r}]", extra, allowed)
        if _noise(own.transforms) and _noise(extra.transforms):
            raise arguments.wrong(ValueError, f"chains[{keys[0]!r}]", extra, "a chain without noise: there is one")
        transforms, codec = own.transforms + extra.transforms, extra.codec or own.codec
        if isinstance(codec, UpperTriangle) and _noise(extra.transforms):
            transforms += (_SymmetricPart(),)
        if self.exchange.reveal == "sum" and extra.codec is not None:
            if self.composed.keep and not _noise(transforms):
                transforms += _shorter(transforms, extra.codec, self.width(name))
            codec = _summable(keys[0], codec, transforms, self.num_clients)
        if keys[0] == EVERYTHING and codec is not None:
            codec = _Large(codec)
        if self.exchange.reveal == "sum" and self._changes(name):
            allowed = f'reveal="each", or changes without {name!r}: a sum of weighted parameters is no sum of changes'
            raise arguments.wrong(ValueError, "reveal", "sum", allowed)
        return Chain(transforms, codec)

    def _changes(self, name: str) -> bool:
        """Whether of ``name`` the difference from the broadcast passes a chain."""
        chains, keys = self.composed.chains, self.keys_of(name)
        passed = bool(keys) and chains[keys[0]] != Chain()
        return passed and name in self.composed.changes and name in self.exchange.down

    def _known(self) -> set[str]:
        """The uploads whose names are known, before they are there or since. Raises: ValueError (none for "*")."""
        keys, here = self.composed.chains, f"{self.exchange.name}/"
        known = set(self.exchange.like) | self.seen
        if not known and EVERYTHING in keys:
            allowed = "the names of uploads, where noise follows in an exchange that does not say them (like)"
            raise arguments.wrong(ValueError, "chains", sorted(keys), allowed)
        named = set() if known else {key.removeprefix(here) for key in keys}
        return known | set(self.exchange.chain) | {name for name in named if "/" not in name}

    def width(self, name: str) -> int:
        """Components of the upload ``name``, as far as the exchange says so; else 0."""
        return sum(x.numel() for _, x in leaves(self.exchange.like.get(name, {})))

    # --- what passes

    def around(self) -> Exchange:
        """The exchange with these chains."""
        return replace(self.exchange, chain=self, work=_Work(self.exchange.work, self))

    def differences(self, reply: Reply, local: Local) -> Reply:
        """What the work wants to send, as it enters the chains.

        Raises: ValueError (in clear beside noised uploads), Diverged (what no chain can carry).
        """
        if self.composed.noised:
            public = set(self.composed.public)
            bare = [n for n in reply.upload if n not in public and not _noise(self.get(n, Chain()).transforms)]
            if bare:
                allowed = "a chain with noise for each, or public= where they tell nothing of the clients' data"
                raise arguments.wrong(ValueError, "uploads without noise", bare, allowed)
        if split := [name for name in filter(self.keys_of, reply.upload) if "/" in name]:
            allowed = "names without '/', where a chain is composed around them: EXCHANGE/NAME means another upload"
            raise arguments.wrong(ValueError, "uploads", split, allowed)
        upload = dict(reply.upload)
        for name in filter(self._changes, reply.upload):
            new, old = (flatten(tree) for tree in (upload[name], local.inbox[name]))
            if {leaf: x.shape for leaf, x in new.items()} != {leaf: x.shape for leaf, x in old.items()}:
                allowed = "names whose upload has the form of what came down under that name"
                raise arguments.wrong(ValueError, "changes", name, allowed)
            upload[name] = tree_map(torch.sub, upload[name], local.inbox[name])
        for name in filter(self.keys_of, upload):
            if not math.isinf(_bound(self.get(name, Chain()).transforms)):
                continue  # a clip counts what is not finite as nothing: an end would tell everybody of it
            if not all(bool((x.abs() <= LARGEST).all()) for _, x in leaves(upload[name])):
                raise Diverged(f"the upload {name!r} is no longer finite (a smaller step size lr may help)")
        return replace(reply, upload=upload)

    def sent(self, names: set[str]) -> set[str]:
        """What was sent. Raises: ValueError (not what a release was entered for)."""
        late = sorted(n for n in names if self._before is not None and self.keys_of(n) and n not in self._before)
        if late:
            allowed = f"what the exchange says it sends (like): {sorted(self._before)}, as noise follows"
            raise arguments.wrong(ValueError, "uploads", late, allowed)
        self.seen = names
        return names

    def put_back(self, uploads: Uploads) -> Uploads:
        """The differences on top of what was sent down."""
        parts = []
        for part in uploads.parts:
            tree = dict(part.tree)
            for name in filter(self._changes, part.tree):
                down = tree_map(lambda x, part=part: _value(x)[part.slot], self.exchange.down[name])
                tree[name] = tree_map(torch.add, down, part.tree[name])
            parts.append(replace(part, tree=tree))
        return Uploads(uploads.cohort, parts, self.exchange.like)

    # --- what it costs

    def releases(self) -> list[tuple[str, Release, Cohort]]:
        """What the composed chains themselves release in this exchange: the uploads that get noise."""
        made, here = [], f"{self.exchange.name}/"
        for key, chain in self.composed.chains.items():
            name = key.removeprefix(here)
            if "/" in name or not _noise(chain.transforms):
                continue
            release = _local_release(name, chain.transforms, self.composed.adjacency)
            made.append((name, release, self.exchange.cohort))
        return made

    def restated(self, release: Release, cohort: Cohort | None) -> tuple[Release, Cohort | None]:
        """The algorithm's release, and whose, as it is after what was composed. Raises: ValueError (no bound known)."""
        if release.trust == "none":  # the noise was in the message: post-processing
            return release, cohort
        known = self._known()
        self._before = self._before if self.seen else known
        squares, lengthened = 0.0, False  # what one client moves: all its uploads together
        for name in sorted(known):
            own = self.exchange.chain.get(name, Chain())
            chain = self.get(name, own)
            if chain == own:
                clip = _bound(own.transforms)
                squares += 0.0 if math.isinf(clip) else clip**2
                continue
            if release.trust == "distributed_noise":
                return _alone(release, chain.transforms), self.exchange.cohort
            added = chain.transforms[len(own.transforms) :]
            if not all(isinstance(step, Clip) for step in added):
                allowed = f"a codec, or a Clip: the noise on {name!r} comes after it"
                raise arguments.wrong(ValueError, "chains, transforms", added, allowed)
            if chain.codec is not own.codec:
                squares += _longest(release, chain, self.width(name)) ** 2
                lengthened = True
            elif not math.isinf(clip := _bound(chain.transforms)):
                squares += clip**2
        if not lengthened:
            return release, cohort
        sensitivity = max(release.sensitivity, sum_sensitivity(math.sqrt(squares), release.adjacency))
        multiplier = release.noise_multiplier * release.sensitivity / sensitivity
        what = f"{release.what}, quantised before the noise"
        return replace(release, what=what, sensitivity=sensitivity, noise_multiplier=multiplier), cohort


@dataclass(frozen=True)
class _Work:
    """The algorithm's local work, whose uploads are then what enters the chains."""

    work: Callable[[Local], Reply]
    chains: _Chains

    def __call__(self, local: Local) -> Reply:
        reply = self.work(local)
        return self.chains.differences(reply, local) if isinstance(reply, Reply) else reply


@dataclass(frozen=True)
class _Large:
    """A codec for what is large: a message of one number a row, or of whole numbers, travels as it is."""

    codec: Codec

    def encode(self, message: dict[str, Tensor], rngs: list[np.random.Generator]) -> list[Encoded]:
        if not self._small(message):
            return self.codec.encode(message, rngs)
        rows = [x.detach().cpu().reshape(len(x), -1).contiguous().view(torch.uint8) for x in message.values()]
        return [Encoded(row) for row in torch.cat(rows, 1)]

    def decode(self, buffers: list[Encoded], like: dict[str, Tensor]) -> dict[str, Tensor]:
        if not self._small(like):
            return self.codec.decode(buffers, like)
        sizes = [x[:1].numel() * x.element_size() for x in like.values()]
        if not buffers or any(buffer.nbytes != sum(sizes) for buffer in buffers):
            raise arguments.wrong(ValueError, "buffers, bytes", [b.nbytes for b in buffers], f"{sum(sizes)} each")
        parts = torch.stack([buffer.buffer for buffer in buffers]).split(sizes, 1)
        return {
            name: part.contiguous().view(x.dtype).view(x.shape).to(x.device)
            for (name, x), part in zip(like.items(), parts, strict=True)
        }

    @staticmethod
    def _small(message: dict[str, Tensor]) -> bool:
        numbers = sum(x.shape[1:].numel() for x in message.values())
        return numbers < 2 or not all(x.dtype.is_floating_point for x in message.values())


class _Heard(Turn):
    """A turn whose releases wait until it is known what they pass; ``quiet``: nothing leaves in clear any more."""

    @classmethod
    def of(cls, turn: Turn, quiet: bool) -> _Heard:
        heard = cls(**{field.name: getattr(turn, field.name) for field in fields(turn)})
        heard.inner, heard.quiet, heard.held = turn, quiet, []
        return heard

    def release(self, release: Release, cohort: Cohort | None = None) -> None:
        self.held.append((release, cohort))

    def in_clear(self, what: str) -> None:
        if not self.quiet:
            self.inner.in_clear(what)


def _value(leaf: Tensor | Wire) -> Tensor:
    return leaf.value if isinstance(leaf, Wire) else leaf


@dataclass(frozen=True)
class _SymmetricPart:
    """Upload transform: (M + M^T) / 2 of matrices [R, H, H]; after noise it costs nothing (post-processing)."""

    def __call__(
        self, message: Mapping[str, Tensor], rngs: Sequence[np.random.Generator]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return {name: (x + x.mT) / 2 for name, x in message.items()}, {}


def _subtracted(algorithm: Algorithm) -> Sequence[str]:
    """The uploads of which a client later takes its own off the average: "*" all of them."""
    return getattr(algorithm, "subtracts_own", ())


def _noise(transforms: Sequence[Any]) -> bool:
    return any(isinstance(step, ClientGaussian) and step.std > 0 for step in transforms)


def _bound(transforms: Sequence[Any]) -> float:
    """C, the smallest bound of the clips; infinite if there is none."""
    return min((step.bound for step in transforms if isinstance(step, Clip)), default=math.inf)


def _check(name: str, chain: Chain) -> None:
    """Refuse what has no meaning or no bound. Raises: TypeError, ValueError."""
    if not isinstance(name, str) or not name:
        raise arguments.wrong(TypeError, "chains, a name", name, "the name of an upload, EXCHANGE/NAME, or *")
    if not isinstance(chain, Chain):
        raise arguments.wrong(TypeError, f"chains[{name!r}]", chain, "a Chain")
    if hasattr(chain.codec, "name"):  # a compressor of one tensor
        raise arguments.wrong(TypeError, f"chains[{name!r}], codec", chain.codec, "fedbook.compression.Codec of it")
    uncalled = [step for step in chain.transforms if not callable(step)]
    if uncalled:
        allowed = "steps such as Clip(1.0); a codec stands after them, by itself"
        raise arguments.wrong(TypeError, f"chains[{name!r}], transforms", uncalled, allowed)
    if re.search(" at 0x[0-9a-f]", repr(chain)):  # it names a run by what differs at the next: no resume, other noise
        allowed = "parts whose repr says what they are, such as a dataclass's"
        raise arguments.wrong(TypeError, f"chains[{name!r}]", chain, allowed)
    if not _noise(chain.transforms):
        return
    if name == EVERYTHING:
        raise arguments.wrong(ValueError, "chains", name, "the names of the uploads that get noise, each by itself")
    places = [i for i, step in enumerate(chain.transforms) if isinstance(step, ClientGaussian)]
    before = chain.transforms[places[0] - 1] if places[0] else None
    if len(places) > 1 or not isinstance(before, Clip) or math.isinf(before.bound):
        allowed = "one ClientGaussian, right after a Clip of finite bound"
        raise arguments.wrong(ValueError, f"chains[{name!r}]", chain.transforms, allowed)


def _summable(name: str, codec: Codec, transforms: Sequence[Any], parties: int) -> Codec:
    """``codec`` for a sum of at most ``parties`` messages. Raises: ValueError."""
    made = getattr(codec, "compressor", None)
    if isinstance(made, AnyWidth) and made.name == "scalar":
        made = made.made(1)
    if isinstance(made, Summable):
        return codec
    if not isinstance(made, UniformScalar):
        allowed = 'a scalar quantiser under reveal="sum": the codes of others do not add up'
        raise arguments.wrong(ValueError, f"chains[{name!r}], codec", codec, allowed)
    if made.low is None:
        bound = _bound(transforms)
        if math.isinf(bound):
            allowed = 'one with a fixed range under reveal="sum", or a Clip before it, whose bound is the range'
            raise arguments.wrong(ValueError, f"chains[{name!r}], codec", codec, allowed)
        made = replace(made, low=-bound, high=bound)
    return CompressorCodec(Summable(made, parties))


def _shorter(transforms: Sequence[Any], codec: Codec, width: int) -> tuple[Clip, ...]:
    """The clip B with B + the largest error of the range [-B, B] = C; none where the range is given, or nothing is."""
    bound, made = _bound(transforms), getattr(codec, "compressor", None)
    made = made.made(1) if isinstance(made, AnyWidth) and made.name == "scalar" else made
    if not isinstance(made, UniformScalar) or made.low is not None or math.isinf(bound) or not width:
        return ()
    return (Clip(bound / (1 + made.largest_error(width, -1.0, 1.0))),)


def _local_release(name: str, transforms: Sequence[Any], adjacency: str) -> Release:
    """One client's clipped and noised upload: everybody may see it."""
    place = next(i for i, step in enumerate(transforms) if isinstance(step, ClientGaussian))
    sensitivity = sum_sensitivity(transforms[place - 1].bound, adjacency)
    return Release(
        what=f"each client's clipped and noised upload {name!r}", unit="client", adjacency=adjacency,
        noise_multiplier=transforms[place].std / sensitivity, sensitivity=sensitivity, trust="none",
        released_by="client",
    )  # fmt: skip


def _alone(release: Release, transforms: Sequence[Any]) -> Release:
    """A sum of rounded messages promises what one client's own share of the noise does."""
    noise = next((step.std for step in transforms if isinstance(step, ClientGaussian)), 0.0)
    return replace(
        release, what=f"{release.what}, each rounded after its own share of the noise", trust="none",
        noise_multiplier=noise / release.sensitivity, sampler="none", rate=None,
    )  # fmt: skip


def _longest(release: Release, chain: Chain, width: int) -> float:
    """C', the bound of an upload whose noise comes after the codec: C + the codec's largest error."""
    made, bound = getattr(chain.codec, "codec", chain.codec), _bound(chain.transforms)
    made = getattr(made, "compressor", None)
    quantiser = made.quantiser if isinstance(made, Summable) else made
    if not isinstance(quantiser, UniformScalar) or math.isinf(bound) or not width:
        allowed = "a scalar quantiser after a Clip, and uploads of a form that the exchange says (like)"
        raise arguments.wrong(ValueError, "codec before the noise", chain.codec, allowed)
    if quantiser.low is not None and not quantiser.low <= 0 <= quantiser.high:  # what is cut to it is lengthened
        given, allowed = (quantiser.low, quantiser.high), "a range that holds 0, as the noise comes after it"
        raise arguments.wrong(ValueError, "codec, low and high", given, allowed)
    ends = (-bound, bound) if quantiser.low is None else (None, None)
    error = quantiser.largest_error(width, *ends)
    error *= 2 if release.adjacency == "zero_out" else 1  # an emptied client may still send what 0 is rounded to
    return bound + error
