"""Rows of PyTorch files are those of torch.load; pickles that want more than tensors never run."""

from __future__ import annotations

import argparse
import collections
import io
import os
import pickle
import struct
import tarfile
import types
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from embcli.errors import LayerError
from tests.cases import cases
from tests.files.made import assert_rows, layer, matrix, refusal, refused, tensors_of, zipped

# --- tensors in what a file holds -----------------------------------------------------------------


def test_a_vector_is_read_whole_with_its_stride():
    torch.save({"v": torch.arange(10.0)[1::3]}, "m.pt")
    assert tensors_of("m.pt").array("v").tolist() == [1, 4, 7]


@pytest.mark.parametrize(
    "view",
    [
        lambda square: square[::2, :4],
        lambda square: square[:4, :4].t(),
        lambda square: square[0, :4].expand(4, 4),
    ],
)
def test_views_of_one_storage_are_other_matrices(
    view,
):
    square = torch.from_numpy(matrix(8, 8))
    corner = square[:4, :4]
    torch.save({"corner": corner, "view": view(square), "again": corner}, "m.pt")
    tensors = tensors_of("m.pt")
    assert_rows(tensors.layer("view"), torch.load("m.pt")["view"].numpy())
    assert tensors["corner"].stored_at == tensors["again"].stored_at
    assert tensors["corner"].stored_at != tensors["view"].stored_at


def test_tensors_are_found_in_dictionaries_and_lists_by_the_keys_that_lead_to_them():
    weight = torch.from_numpy(matrix())
    state = collections.OrderedDict({"wte.weight": weight, "again": torch.nn.Parameter(weight)})
    optimizer = {"state": {0: {"exp_avg": weight}}, "groups": [{"lr": 0.1}, weight]}
    torch.save({"model": state, "step": 3, "optimizer": optimizer}, "m.pt")

    tensors = tensors_of("m.pt")

    first = "model.wte.weight"
    assert list(tensors) == [
        first,
        "model.again",
        "optimizer.state.0.exp_avg",
        "optimizer.groups.1",
    ]
    for name, tensor in tensors.items():
        assert tensor.start == tensors[first].start
        assert_rows(tensors.layer(name), matrix())


def test_lists_that_hold_themselves_end():
    loop: list[object] = [torch.zeros(2, 3)]
    loop.append(loop)
    torch.save(loop, "m.pt")
    assert list(tensors_of("m.pt")) == ["0"]


BASE = torch.from_numpy(matrix())
TAGGED = torch.nn.Parameter(BASE.clone())
TAGGED.tag = 1  # type: ignore[attr-defined]
NOTED = BASE.clone()
NOTED.note = {"a": [BASE]}  # type: ignore[attr-defined]
READABLE = {"tagged": TAGGED, "noted": NOTED, "weight": torch.nn.Linear(3, 4).weight}
DESCRIBED = {
    "negated": torch._neg_view(BASE),
    "imaginary": torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    "scale": BASE.to(torch.float8_e4m3fnuz),
    "bool": torch.zeros(2, 3, dtype=torch.bool),
    "none": torch.zeros(0, 3),
    "number": torch.tensor(3.0),
}


@pytest.mark.parametrize("name", [*READABLE, *DESCRIBED])
def test_tensors_of_other_kinds_are_described_as_torch_has_them(name):
    torch.save((READABLE | DESCRIBED)[name], "m.pt")
    held = torch.load("m.pt", weights_only=False)
    tensors = tensors_of("m.pt")
    (tensor,) = tensors.values()
    assert tensor.shape == tuple(held.shape)
    assert tensor.dtype == str(held.dtype).removeprefix("torch.")
    if name in READABLE:
        assert_rows(tensors.layer(tensor.name), held.detach().numpy())
    else:
        refusal("m.pt", tensor.name)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch warns of its quantised tensors.
@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (partial(torch.zeros, 2, 3, device="meta"), "meta_tensor_no_storage"),
        (BASE.to_sparse, "sparse_tensor"),
        (partial(torch.quantize_per_tensor, BASE, 0.1, 0, torch.qint8), "qtensor"),
    ],
)
def test_tensors_without_plain_numbers_are_listed_and_refused(made, kind):
    torch.save({"a": made()}, "m.pt")
    tensor = tensors_of("m.pt")["a"]
    assert tensor.shape == ()
    assert tensor.dtype == kind
    assert "'a'" in refusal("m.pt", "a")


@pytest.mark.parametrize(
    "value",
    [
        [{1, 2}, 1j, b"abc", bytearray(b"x"), 2**70, None, True, -5, 1e300],
        collections.Counter("aab"),
        [torch.device("cpu"), torch.float16, torch.Size([1, 2]), torch.strided],
        matrix().tobytes(),
        [np.float64(0.5), np.arange(3), np.dtype("f4")],
        [argparse.Namespace(rate=BASE), types.SimpleNamespace(a=1), Path("a")],
    ],
)
def test_other_values_beside_a_tensor_are_passed_over(value):
    torch.save({"before": value, "weight": BASE, "after": value}, "m.pt")
    tensors = tensors_of("m.pt")
    assert list(tensors) == ["weight"]
    assert_rows(tensors.layer("weight"), matrix())


def test_a_tensor_that_processes_share_is_refused():
    asked = b"ctorch.distributed.tensor\nDTensor\n."
    assert "divided among several processes" in refused("m.pt", with_pickle(asked))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_each_protocol_of_pickles_is_read(protocol):
    saved = {"args": argparse.Namespace(rate=1), "best": np.float64(0.5), "weight": BASE}
    torch.save(saved, "m.pt", pickle_protocol=protocol)
    assert_rows(layer("m.pt", "weight"), matrix())


# --- pickles that want code -----------------------------------------------------------------------


class Evil:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("made",)


@pytest.mark.parametrize(
    ("is_zip", "reason"),
    [(True, f"asks for '{os.mkdir.__module__}.mkdir'"), (False, "PyTorch before 1.6")],
)
def test_a_pickle_that_wants_code_is_refused_and_nothing_of_it_runs(is_zip, reason):
    saved = {"weight": torch.zeros(2, 3), "evil": Evil()}
    torch.save(saved, "m.pt", _use_new_zipfile_serialization=is_zip)
    assert reason in refusal("m.pt")
    assert not Path("made").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_plain_pickle_is_named_by_its_class(protocol):
    data = pickle.dumps(Evil(), protocol)
    assert f"asks for '{os.mkdir.__module__}.mkdir'" in refused("m.pt", data)
    renamed = b"\x80\2cgensim.models.keyedvectors\nKeyedVectors\n)\x81."
    assert "save_word2vec_format" in refused("m.kv", renamed)
    assert not Path("made").exists()


# --- pickles that lie -----------------------------------------------------------------------------


def with_pickle(opcodes: bytes, **members: bytes) -> bytes:
    """Return an archive like torch's, with a pickle and other members of one's own."""
    files = {"m/data.pkl": b"\x80\2" + opcodes, "m/version": b"3\n"}
    for name, data in members.items():
        files[f"m/{name.replace('__', '/')}"] = data
    return zipped(files)


def key_of_hash_0(number: int) -> bytes:
    """Return the opcodes of a whole number that Python hashes to 0, and of None."""
    return b"\x8a\x0c" + ((2**61 - 1) * number).to_bytes(12, "little") + b"N"


# Each takes another reader gigabytes, minutes or the stack.
OWN_STORAGE = b"ctorch.storage\nUntypedStorage\nJ\0\0\0\x10\x85R."
ENDLESS_NAME = b"cos\n" + b"x" * 30_000 + b"\n."
KEYS_IN_KEYS = b"})" + b"\x85" * 100_000 + b"Ns."
VALUES_IN_VALUES = b"}K\1)" + b"\x85" * 100_000 + b"s."
MANY_OPCODES = b"N" * (1 << 22) + b"."
KEYS_OF_ONE_HASH = b"}(" + b"".join(map(key_of_hash_0, range(20_000))) + b"u."
LONG_NAME = b"X" + struct.pack("<I", 10_000) + b"x" * 10_000
LONG_NAMES_OFTEN = b"}" + LONG_NAME + b"]q\0(" + b"]" * 100_000 + b"es."
# A dtype of torch with a name of a megabyte, asked for 100,000 times.
LONG_DTYPE = b"X" + struct.pack("<I", 1 << 20) + b"int8_" + b"x" * ((1 << 20) - 5)
LONG_DTYPES_OFTEN = b"X\5\0\0\0torchq\0" + LONG_DTYPE + b"q\1" + b"h\0h\1\x93" * 100_000 + b"."
FUNCTION_OF_A_FUNCTION = b"ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0N(h\0N)NtNtR."


@pytest.mark.parametrize(
    ("opcodes", "reason"),
    [
        (OWN_STORAGE, "its pickle is damaged"),
        (ENDLESS_NAME, "asks for 'os.xxx"),
        (KEYS_IN_KEYS, "a key that is neither text nor a number"),
        (VALUES_IN_VALUES, "nested more deeply"),
        (MANY_OPCODES, "4,194,307 bytes, and embcli reads up to"),
        (KEYS_OF_ONE_HASH, "a key that is neither text nor a number"),
        (LONG_NAMES_OFTEN, "longer names"),
        (FUNCTION_OF_A_FUNCTION, "its pickle is damaged"),
        (b"", "its pickle is damaged"),
        (b"\xff.", "its pickle is damaged"),
        (b"c\xff\n\xff\n.", "its pickle is damaged"),
        (b"X\xff\xff\xff\xff.", "its pickle is damaged"),
    ],
    ids=range(12),
)
def test_a_pickle_that_asks_for_memory_time_or_depth_or_is_damaged_is_refused(opcodes, reason):
    assert reason in refused("m.pt", with_pickle(opcodes))


MEMO_WITH_HOLES = b"Nr\xff\xff\xff\xff."
ARRAY_OF_BYTES = b"c__builtin__\nbytearray\n\x8a\6\0\0\0\0\0\1\x85R."
LIST_IN_ITSELF_BY_TWO_WAYS = b"]q\0" + b"(h\0h\0e" * 40_000 + b"."


@pytest.mark.parametrize(
    "opcodes",
    [MEMO_WITH_HOLES, ARRAY_OF_BYTES, LIST_IN_ITSELF_BY_TWO_WAYS, LONG_DTYPES_OFTEN],
    ids=range(4),
)
def test_a_pickle_that_asks_for_memory_without_a_tensor_gets_none(opcodes):
    Path("m.pt").write_bytes(with_pickle(opcodes))
    assert not tensors_of("m.pt")


def opcodes_of(value: object) -> bytes:
    """Return the opcodes of a value, without those that begin and end a pickle."""
    return pickle.dumps(value, 2)[2:-1]


def tensor(
    count: int = 6, first: int = 0, shape: Sequence[int] = (2, 3), strides: Sequence[int] = (3, 1)
) -> bytes:
    """Return the opcodes of a float32 tensor in storage 0."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpuK%ctQ" % count
    values = opcodes_of(first) + opcodes_of(tuple(shape)) + opcodes_of(tuple(strides))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + values + b"\x89NtR"


NUMBERS = np.arange(6, dtype="<f4")


def test_a_tensor_that_is_spelled_in_opcodes_is_read():
    data = with_pickle(tensor() + b".", data__0=NUMBERS.tobytes())
    Path("m.pt").write_bytes(data)
    assert_rows(layer("m.pt", "m"), NUMBERS.reshape(2, 3))


def test_a_tensor_that_repeats_its_numbers_beyond_memory_is_refused():
    billions = 2**31 - 1
    opcodes = tensor(shape=(billions, billions), strides=(0, 0)) + b"."
    Path("m.pt").write_bytes(with_pickle(opcodes, data__0=NUMBERS.tobytes()))
    with pytest.raises(LayerError, match="of memory"):
        tensors_of("m.pt")


def refused_tensor(opcodes: bytes) -> str:
    """Expect that a tensor of six numbers is refused; return the error."""
    return refused("m.pt", with_pickle(opcodes + b".", data__0=NUMBERS.tobytes()))


@cases
def test_a_tensor_has_the_numbers_of_its_storage_and_no_others(described, reason):
    assert reason in refused_tensor(tensor(**described))


def test_what_is_made_of_a_storage_once_is_not_made_otherwise():
    twice = tensor() + tensor(5, shape=(1, 3)) + b"\x86"
    assert "claims 20 bytes and has 24" in refused_tensor(twice)
    assert "changes a tensor that it has made" in refused_tensor(tensor() + b")b")


# --- archives that lie ----------------------------------------------------------------------------


def test_files_of_old_forms_are_refused():
    assert "PyTorch before 1.6" in refused("plain.pt", pickle.dumps({"a": 1}))
    with tarfile.open("tar.pt", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    assert "unlike a file of safetensors" in refusal("tar.pt")


LOCAL = b"PK\3\4"  # what the header before a member begins with
CENTRAL = b"PK\1\2"  # what the header of a member at the end of an archive begins with


@pytest.mark.parametrize(
    ("header", "place", "lie", "member", "reason"),
    [
        (LOCAL, 0, b"XX", "data__0", "'m/data/0' has no header"),
        (LOCAL, 28, b"\xff\xff", "data__0", "its storage '0' claims 24 bytes"),
        (CENTRAL, 8, b"\1", "data__0", "torch.save does not write"),
        (CENTRAL, 46, b"m/version", "storage", "torch.save does not write"),
    ],
    ids=["no header", "another length of its extra field", "encrypted", "there twice"],
)
def test_archives_that_lie_about_a_storage_are_refused(header, place, lie, member, reason):
    data = bytearray(with_pickle(tensor() + b".", **{member: bytes(24)}))
    start = data.rindex(header) + place
    data[start : start + len(lie)] = lie
    assert reason in refused("m.pt", data)


@pytest.fixture
def members() -> dict[str, bytes]:
    """Return the members of an archive that torch writes."""
    torch.save({"a": torch.zeros(20, 30)}, "m.pt")
    with zipfile.ZipFile("m.pt") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_compressed_archive_is_refused(members):
    deflated = zipped(members, zipfile.ZIP_DEFLATED)
    message = refused("m.pt", deflated)
    assert "torch.save does not write" in message
    assert "damaged" not in message


@cases
def test_an_archive_without_a_member_is_refused(members, member, reason):
    del members[member]
    assert reason in refused("m.pt", zipped(members))


def test_big_endian_numbers_are_refused(members):
    members["m/byteorder"] = b"big"
    assert "big-endian" in refused("m.pt", zipped(members))


@cases
def test_an_archive_that_is_cut_is_refused(members, end):
    whole = zipped(members)
    assert "damaged" in refused("m.pt", whole[:end])
