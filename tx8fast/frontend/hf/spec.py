"""What a transformer looks like once its config file is understood: sizes, block shape, attention, experts.

May import: the standard library, frontend.hf.states. Must not: know config keys, weights or the IR.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tx8fast.frontend.hf.states import Cache, Keeper
from tx8fast.records import dataclass

#: mixers of tokens that remember nothing
STATELESS = ("none", "disentangled", "squares", "cells")

#: parts of a query-key-value matrix that was trained on as many devices (CodeGen)
SHARDS = 4


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotation: `scaling` as in `weights.rope`, `gain` multiplies the tables."""

    theta: float
    rotary_dim: int
    scaling: dict[str, Any] = field(hash=False)
    style: str = "half"
    gain: float = 1.0
    images: bool = False  # rows of an image have places in time, height and width; of text all three are the position
    width: int = 0  # lanes of the heads that it turns, 0: as the model says
    backwards: bool = False  # the angle falls with the position


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts. `shared`: hidden width of the experts every token uses, 0 = none.

    `scores` turns router logits into probabilities; with `groups` > 1 only the best `top_groups` groups of experts
    are eligible, a group's rank being its best expert ("max") or the sum of its two best ("top2").
    """

    count: int
    top_k: int
    intermediate: int
    shared: int = 0
    scores: str = "softmax"
    normalise: bool = False
    floor: float = 0.0  # ... by their sum and this
    least: float = 0.0  # ... which is this at least
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_score: str = "max"
    correction: bool = False  # a learned bias that only influences the choice
    wide_router: bool = False  # the router's product is taken in f32
    router_bias: bool = False
    router_norm: bool = False  # the router sees normalised rows, multiplied by a learned factor per channel
    expert_scale: bool = False  # learned factors of what the experts give
    beside: bool = False  # experts stand beside a plain feed-forward part, with norms of their own
    bias: bool = False  # every expert has biases
    shared_gate: bool = False  # a learned gate on what the shared experts give
    shared_mean: bool = False  # the mean of what chosen and shared experts give, not their sum
    weigh_inputs: bool = False  # the weight multiplies what goes into an expert, not what comes out of it
    jitter: float = (
        -1.0  # >= 0: experts are drawn one after another among those within this relative distance of the best
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """Queries grow with their position p, by log(floor((p + first) / step) + 1) * factor + 1; `turned`: in all layers, not
    only in those without rotation."""

    step: float
    factor: float
    first: float = 1.0
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Latent:
    """Latent attention: `q_rank` 0 = queries are projected directly. Widths per head but the ranks."""

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True, slots=True)
class Relative:
    """Scores learn a summand per head and bucket of distances (T5): half of the `buckets` hold one distance each, the others
    ever more, up to `distance`. `both`: distances ahead have buckets of their own. `each`: every layer has a table, not the first alone."""

    buckets: int
    distance: int
    both: bool
    each: bool = False


@dataclass(frozen=True, slots=True)
class Distances:
    """Scores compare contents with learned rows per distance (DeBERTa): `to_places` queries, `from_places` keys. Of 2 * `span` rows half are
    for keys ahead; with `buckets` > 0 distances share rows, the more the farther, up to `farthest`. `shared`: the projections of contents
    serve; `normed`: rows are normalised."""

    span: int
    buckets: int
    farthest: int
    to_places: bool
    from_places: bool
    shared: bool
    normed: bool


@dataclass(frozen=True, slots=True)
class Stream:
    """What flows past a part of a layer is what its norm gives. It and what the part gives are multiplied by two numbers each: of
    attention, of other mixers of tokens, of feed-forward parts (MiniMax)."""

    attention: tuple[float, float]
    others: tuple[float, float]
    fed: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Side:
    """Every layer sees a row of its own, `width` wide, of a second table of `vocab` tokens, mixed with what it makes of the embedding."""

    vocab: int
    width: int


@dataclass(frozen=True, slots=True)
class Shared:
    """Transformer layers that several places share, in front of their mixers. Per layer: `lender`, the layer under whose name the shared one
    is stored, -1 = none there; `place`, the place's number. `rank` of each place's own residuals, 0 = none; `attention`: those of queries,
    keys and values, too."""

    lender: tuple[int, ...]
    place: tuple[int, ...]
    rank: int
    attention: bool


@dataclass(frozen=True, slots=True)
class Image:
    """What an encoder of images sees, in pixels. `flat`: tables of positions and tokens are stored without leading ones."""

    channels: int
    height: int
    width: int
    patch_height: int
    patch_width: int
    bias: bool = True  # of the patches' product
    class_token: bool = True
    flat: bool = False
    frames: int = 0  # that the patches' product tells apart, 0: it knows none; of a still image all are the same

    @property
    def patches(self) -> tuple[int, int]:
        return self.height // self.patch_height, self.width // self.patch_width


@dataclass(frozen=True, slots=True)
class Squares:
    """Attention among the patches of squares of an image (SAM). Per layer: `sides` in patches, 0 = the whole image. `places`: scores know how
    far apart rows and columns are; `channels` of the map that is made of the result."""

    sides: tuple[int, ...]
    places: bool
    channels: int


@dataclass(frozen=True, slots=True)
class Cells:
    """Patches of an image stand cell by cell, `merge` in a row and `merge` rows, and a cell becomes one row of the result, `width` wide (Qwen-VL).
    `near`: per layer, attention sees a window of `side` x `side` cells. Queries and keys turn by row and column, by `theta`. `deep`: layers whose
    result is merged, too. `table`: rows and columns of a learned square of positions, which is stretched to the image; 0 = none."""

    merge: int
    width: int
    theta: float
    side: int = 0
    near: tuple[bool, ...] = ()
    deep: tuple[int, ...] = ()
    table: int = 0


@dataclass(frozen=True, slots=True)
class Backbone:
    """Convolutions that make a map of an image (ResNet): one of `stem` channels, then stages of blocks. Per stage: `channels` of the result,
    number of `blocks`. `narrow`: blocks have three convolutions, of which the middle one has a quarter of the channels; `early`: the first of
    these steps, else the second; `first`: the first stage steps, as the others do; `timm`: tensors are named as that library does."""

    stem: int
    channels: tuple[int, ...]
    blocks: tuple[int, ...]
    narrow: bool
    early: bool = False
    first: bool = False
    timm: bool = False


@dataclass(frozen=True, slots=True)
class Detection:
    """Learned queries that find objects in an image (DETR): `layers` of a decoder see what the encoder makes of the backbone's map.
    `classes`: of an object, one of them none; 0 = nothing is told of objects but their rows."""

    backbone: Backbone
    layers: int
    heads: int
    units: int
    queries: int
    classes: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes in elements. Per layer: `windows` in tokens (0 = unlimited), `rope_of` index into `ropes` (-1 = none),
    `sparse` whether the feed-forward part is made of experts."""

    model_type: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm_eps: float
    activation: str
    tied: bool
    dtype: str | None  # None: the config does not say
    ropes: tuple[Rope, ...] = ()
    rope_of: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()  # per layer: tokens see their own chunk of so many positions, 0 = everything
    sparse: tuple[bool, ...] = ()
    mixers: tuple[str, ...] = ()  # per layer, a name of `mixers.MIXERS`; empty: attention in all
    fed: tuple[bool, ...] = ()  # per layer: has a feed-forward part; empty: all have
    keepers: tuple[Keeper, ...] = ()  # what the layers that keep a state look like, one of each kind
    attention_gate: bool = False  # what attention gives is multiplied by a sigmoid, whose rows are stored behind every head's queries or by a name of their own
    channel_mix: bool = False  # feed-forward parts see the token before, too (RWKV)
    halved: int = 0  # the stream is halved after every so many layers, which only the eps of norms can tell
    wide_residual: bool = False  # what the layers add to flows in f32
    encoder: bool = False  # sees its whole input at once and keeps no cache; a window reaches both ways
    causal: bool = False  # an encoder whose tokens see what is in front of them only
    #: what a decoder sees at once that ours masks, or does not: "image": rows of an image see each other, which is not there (rows are
    #: causal); "prompt": all rows of a prompt do
    together: str = ""
    pool: str = ""  # what an encoder gives besides its last hidden states: a name of `encoder.POOLS`
    mean_classified: bool = False  # a classifier sees the first row and, behind it, the mean of the others
    projection: int = 0  # width of what the pool "last" and a pooler give, 0: that of the layers
    end_token: int = 0  # the token whose place the pool "end" takes
    layer_scale: bool = False  # learned factors per channel behind attention and feed-forward part
    stream: Stream | None = None
    forms: tuple[tuple[int, int], ...] = ()  # per layer: key heads and width of a head; empty: the same in all
    units: tuple[int, ...] = ()  # per layer: hidden units; empty: the same in all
    keys_from: tuple[
        int, ...
    ] = ()  # per layer: the layer whose keys and values serve, -1 = its own; empty: all have their own
    keys_as_values: tuple[bool, ...] = ()  # per layer: what the keys are made of are the values, too
    value_norm: bool = False  # values are normalised head by head, without gains
    layer_factor: bool = False  # what a layer gives is multiplied by a learned number
    side: Side | None = None
    shared: Shared | None = None
    streams: int = 1  # beside each other, of which a layer computes the first and predicts and corrects the others
    laurel: int = 0  # rank of a second residual around attention, 0 = none
    sparsity: tuple[float | None, ...] = ()  # per layer: gates less than the mean and so many deviations are zero
    distances: Distances | None = None
    taps: int = 0  # of a convolution of the embeddings that is added behind the first layer; 0 = none
    taps_activation: str = "tanh"  # of what it gives
    unnormed: tuple[str, ...] = ()  # norms that single layers lack: "0.attn_norm"
    flipped: bool = False  # the matrices of the layers are stored [in, out]
    fused: str = "rows"  # a stored query-key-value matrix: three blocks of "rows", or "groups" of a key head and its queries, or "shards"
    stored_layers: tuple[int, ...] = ()  # the checkpoint's number of every layer, where some are passed by
    spare_rows: int = 0  # of the embedding, behind the words
    paired_lanes: bool = False  # the rows of stored queries and keys pair the lanes that a rotation turns together
    renamed: tuple[tuple[str, str], ...] = ()  # modules whose stored names this config changes
    cross: bool = False  # a decoder that attends to an encoder's result
    source: int = 0  # rows of that result, 0 = any number
    relative: Relative | None = None
    frames: tuple[int, int] | None = None  # of sound that an encoder hears: channels, frames
    qkv_bias: bool = False
    key_bias: bool = True  # ... of keys too
    qkv_clip: float = 0.0  # queries, keys and values are kept within +- this
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    loose_bias: bool = False  # of the attention, where the checkpoint has them
    loose_head: bool = False  # the embedding serves where the checkpoint has no head of its own
    qk_norm: str = ""  # "head": every head on its own, "heads": likewise with own gains, "full": the whole projection
    qk_norm_bias: bool = False
    qk_norm_gain: bool = True
    qk_norm_late: bool = False  # after the rotation
    qk_norm_eps: float = 0.0  # 0: that of the other norms
    sinks: bool = False  # a learned score per head that takes its share of the softmax and gives nothing
    alibi: tuple[float, ...] = ()  # per head: what a token further away costs
    growth: Growth | None = None
    norm: str = "rms"  # or "layer"
    norm_gain: bool = True
    norm_bias: bool = False
    norm_offset: float = 0.0  # stored gains lack this summand
    gated: bool = True
    gate_limit: float = (
        0.0  # > 0: gate and unit are clamped, the gate is x * sigmoid(gate_slope * x), the unit grows by one
    )
    gate_slope: float = 1.702
    parallel: bool = False  # attention and feed-forward part read the same residual stream
    one_norm: bool = False  # ... through the same norm
    parts_first: bool = False  # ... and what they give is added before it joins the stream
    post_norm: bool = False  # norms after the residual sum
    attention_scale: float = 1.0
    attention_cap: float = 0.0
    logits_cap: float = 0.0
    embedding_scale: float = 1.0
    embedding_norm: bool = False
    norm_positions: bool = False  # ... behind the sum with the positions
    residual_scale: float = 1.0
    multipliers: tuple[tuple[str, float], ...] = ()  # what modules of a layer give is multiplied by this
    logits_divisor: float = 1.0
    positions: int = 0  # rows of a learned position table
    position_offset: int = 0
    waves: int = (
        0  # > 0: positions that are not stored are sines, then cosines, whose length grows by 10000 over so many waves
    )
    embedding_width: int = 0  # 0: that of the hidden state
    final_norm: bool = True
    final_eps: float = 0.0  # of that; 0: that of the others
    experts: Experts | None = None
    latent: Latent | None = None
    token_types: int = 0
    image: Image | None = None
    squares: Squares | None = None
    cells: Cells | None = None
    detection: Detection | None = None
    quantization: dict[str, Any] | None = field(default=None, hash=False)

    @property
    def placed_width(self) -> int:
        """Lanes of positions, kinds of tokens and the norm of their sum: an encoder's are as narrow as its words."""
        return self.embedding_width if self.encoder and self.embedding_width else self.hidden

    @property
    def value_width(self) -> int:
        """Columns of the attention's result."""
        return self.heads * (self.latent.value if self.latent else self.head_dim)

    @property
    def gguf(self) -> bool:
        """True if the tensors are named and arranged as in a GGUF file."""
        return self.quantization is not None and self.quantization["method"] == "gguf"

    @property
    def ahead(self) -> bool:
        """True if a row sees those behind it, too."""
        return (self.encoder and not self.causal) or self.together == "prompt"

    def sight(self, i: int) -> tuple[int, int]:
        """Return the window and the chunk of layer `i`, which decide its mask."""
        return self.windows[i], self.chunks[i] if self.chunks else 0

    def form(self, i: int) -> tuple[int, int]:
        """Return the number of key heads of layer `i`, and the width of a head."""
        return self.forms[i] if self.forms else (self.kv_heads, self.head_dim)

    def mixer(self, i: int) -> str:
        return self.mixers[i] if self.mixers else "attention"

    def caches(self, i: int) -> tuple[Cache, ...]:
        """Return what layer `i` remembers."""
        kind, found = self.mixer(i), []
        for part in kind.split("+"):
            if part == "shared":
                width = (self.kv_heads * self.head_dim,)
                found += [Cache("key", width), Cache("value", width)]
            elif part == "attention" and self.latent is not None:
                found += [Cache("latent", (self.latent.kv_rank,)), Cache("rope_key", (self.latent.rope,))]
            elif part == "attention":
                heads, lanes = self.form(i)
                if not self.keys_from or self.keys_from[i] < 0:
                    found += [Cache("key", (heads * lanes,)), Cache("value", (heads * lanes,))]
            elif part not in STATELESS:
                found += self.keeper(part).caches(self.hidden)
        return tuple(found)

    def keeper(self, kind: str) -> Any:
        """Return what the layers of a `kind` that keep a state look like."""
        return next(k for k in self.keepers if k.kind == kind)
