"""llama.cpp's library, built of the sources of llama_sources.py, and what is asked of it: ids of a
text, logits of a row of tokens, a quantised file. Used by gguf_llama.py.

built_library() builds it beside the sources the first time, for the processor alone: cmake, ninja and g++, about
ten minutes of two cores. Its functions are called through the module of ctypes that the sdist has, which
belongs to this version.
"""

import ctypes
import functools
import importlib
import os
import subprocess
import sys
import types

import numpy

import llama_sources

OPTIONS = ["CMAKE_BUILD_TYPE=Release", "CMAKE_CXX_FLAGS_RELEASE=-O2", "BUILD_SHARED_LIBS=ON", "GGML_NATIVE=ON",
           "GGML_OPENMP=OFF", "GGML_LLAMAFILE=OFF", "GGML_CPU_REPACK=OFF",
           *(f"LLAMA_BUILD_{part}=OFF" for part in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP"))]
F32 = 0
NO_FLASH = 0
SAID = []  # what llama.cpp has logged


def last_words():
    """The first line that tells of a failure."""
    told = [line for line in SAID if "error" in line.lower() or "fail" in line.lower()]
    return (told or SAID or ["no words"])[0]


def build(folder):
    """The folder of libllama.so; what was built before is used."""
    made = folder.parent.parent / "built"
    if not (made / "bin/libllama.so").exists():
        print(f"llama-cpp-python {llama_sources.VERSION}: building libllama, once", file=sys.stderr, flush=True)
        for words in (["cmake", "-S", folder, "-B", made, "-G", "Ninja", *(f"-D{option}" for option in OPTIONS)],
                      ["ninja", "-C", made, "llama"]):
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                raise OSError(f"{words[0]}: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
    return made / "bin"


@functools.cache
def built_library():
    """The module of functions; None: there are no sources, or nothing to build them with."""
    folder = llama_sources.sources()
    if folder is None:
        return None
    try:
        os.environ["LLAMA_CPP_LIB_PATH"] = str(build(folder))
    except OSError as error:
        print(error, file=sys.stderr)
        return None
    # Its package imports a chat server besides: the module alone is wanted.
    package = types.ModuleType("llama_cpp")
    package.__path__ = [str(folder.parent.parent / "llama_cpp")]
    sys.modules["llama_cpp"] = package
    api = importlib.import_module("llama_cpp.llama_cpp")
    api.listener = api.llama_log_callback(lambda _level, text, _data: SAID.append(text.decode(errors="replace").strip()))
    api.llama_log_set(api.listener, None)
    api.llama_backend_init()
    return api


class Model:
    """A GGUF file in llama.cpp, with keys and values in fp32 and without flash attention.

    Errors: OSError with llama.cpp's last words.
    """

    def __init__(self, path, words_alone=False, context=512, threads=1):
        self.api = built_library()
        settings = self.api.llama_model_default_params()
        settings.vocab_only = words_alone
        settings.use_extra_bufts = False  # weights in other places would be other sums
        self.model = self.api.llama_model_load_from_file(str(path).encode(), settings)
        if not self.model:
            raise OSError(last_words())
        self.vocab = self.api.llama_model_get_vocab(self.model)
        self.context = None if words_alone else self.begin(context, threads)

    def begin(self, length, threads):
        settings = self.api.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = length
        settings.n_threads = settings.n_threads_batch = threads
        settings.type_k = settings.type_v = F32
        settings.flash_attn_type = NO_FLASH
        context = self.api.llama_init_from_model(self.model, settings)
        if not context:
            raise OSError(last_words())
        return context

    def words(self):
        return self.api.llama_vocab_n_tokens(self.vocab)

    def ids(self, text, special=False):
        """Without the tokens that begin or end a text. `special`: control tokens are read by their names."""
        data = text.encode()
        room = len(data) + 16
        ids = (self.api.llama_token * room)()
        count = self.api.llama_tokenize(self.vocab, data, len(data), ids, room, False, special)
        if count < 0:
            raise OSError(f"{-count} tokens of {len(data)} bytes")
        return list(ids[:count])

    def logits(self, ids, first=0):
        """[tokens, vocabulary] behind tokens that were given before; `first`: how many these are."""
        if first == 0:
            self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        batch = self.api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, first + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, 1
        code = self.api.llama_decode(self.context, batch)
        self.api.llama_batch_free(batch)
        if code:
            raise OSError(f"llama_decode: {code}: {last_words()}")
        values = self.api.llama_get_logits(self.context)
        shape = (len(ids), self.words())
        return numpy.ctypeslib.as_array(ctypes.cast(values, ctypes.POINTER(ctypes.c_float)), shape).copy()

    def greedy(self, ids, count):
        """Tokens that follow, and the gap between the two likeliest at each."""
        tokens, gaps = [], []
        row = self.logits(ids)[-1]
        while len(tokens) < count:
            second, best = numpy.argpartition(row, -2)[-2:]
            gaps.append(float(row[best] - row[second]))
            tokens.append(int(best))
            row = self.logits([tokens[-1]], len(ids) + len(tokens) - 1)[-1]
        return tokens, gaps


def quantise(source, target, name):
    """Writes a file in another type, as llama-quantize without an importance matrix does."""
    api = built_library()
    settings = api.llama_model_quantize_default_params()
    settings.nthread = 1
    settings.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{name}")
    code = api.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(settings))
    if code:
        raise OSError(f"llama_model_quantize: {code}: {last_words()}")
