"""Every rule is seen to pass a good tree and to fail a bad one."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import clang_tidy
import files_alone
import header_cycles
import no_downcasts
import op_names
import public_includes
import readme_samples
import room_order
import simd_symbols
import tree
import typed_streams
import words

COMPILER = "g++"

GOOD = {
    "include/lockstep/lockstep.h": '#pragma once\n#include "lockstep/tensor/shape.h"\n',
    "include/lockstep/base/error.h": "#pragma once\n#include <string>\nstd::string text();\n",
    "include/lockstep/tensor/shape.h": '#pragma once\n#include <vector>\n#include "lockstep/base/error.h"\n'
                                       "std::vector<int> shape();\n",
    "src/base/parallel.h": "#pragma once\n#include <omp.h>\n",
    "src/base/error.cc": '#include "lockstep/base/error.h"\n#include "base/parallel.h"\n',
    "src/base/error_test.cc": '#include "tensor/tensor_impl.h"\n',
    "src/tensor/tensor_impl.h": '#pragma once\n#include "base/parallel.h"\n#include "lockstep/tensor/shape.h"\n',
    "src/graph/kernel.h": '#pragma once\n#include "tensor/tensor_impl.h"\n',
    "src/ops/matmul/matmul.cc": '#include "graph/kernel.h"\n',
    "src/ops/matmul/matmul_cpu.cc": '#include "backends/cpu/primitive.h"\n',
    "src/backends/cpu/primitive.h": '#pragma once\n#include "graph/kernel.h"\n',
    "src/cli/main.cc": '#include <lockstep/lockstep.h>\n#include "train.h"\n',
    "src/cli/train.h": "#pragma once\n",
}


class RuleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write(GOOD)

    def write(self, files):
        for path, text in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def assert_passes(self, check, **arguments):
        self.assertEqual(check(self.root, argparse.Namespace(**arguments)), [])

    def assert_fails(self, check, *words_expected, **arguments):
        """Exactly one problem, with all these words in it."""
        problems = check(self.root, argparse.Namespace(**arguments))
        self.assertEqual(len(problems), 1, problems)
        for word in words_expected:
            self.assertIn(word, problems[0])


class ReadmeSamplesTest(RuleTest):
    def test_samples_are_examples(self):
        self.write({"examples/a.cc": "// A program.\nint main() {}\n",
                    "README.md": "Text\n```cpp\nint main() {}\n```\n```sh\nls\n```\n"})
        self.assert_passes(readme_samples.check)
        self.write({"README.md": "Text\n```cpp\nint main() { return 1; }\n```\n"})
        self.assert_fails(readme_samples.check, "README.md:2:", "examples/")
        self.write({"README.md": "Text\n", "docs/many_machines.md": "```cpp\nint main() { return 1; }\n```\n"})
        self.assert_fails(readme_samples.check, "docs/many_machines.md:1:", "examples/")
        self.write({"docs/many_machines.md": "Text\n", "examples/articles/loop.cc": "int main() { return 2; }\n",
                    "docs/guide/loops.md": "```cpp\nint main() { return 2; }\n```\n"})
        self.assert_passes(readme_samples.check)
        self.write({"docs/guide/loops.md": "Text\n\n```cpp\nint main() { return 3; }\n```\n"})
        self.assert_fails(readme_samples.check, "docs/guide/loops.md:3:", "examples/")


class NoDowncastsTest(RuleTest):
    def test_exceptions_may_be_cast_and_so_may_layers(self):
        self.write({"src/comm/workers.cc": "auto* e = dynamic_cast<const Error*>(&error);\n"
                                           "auto* f = dynamic_cast<const errors::IoError*>(&error);\n",
                    "src/keras/model.cc": "auto* m = dynamic_cast<ModelBase*>(layer);\n"})
        self.assert_passes(no_downcasts.check)

    def test_a_downcast_is_found(self):
        for line in ("auto* cpu = dynamic_cast<CpuDevice*>(&device);", "auto& s = dynamic_cast< cuda::CudaStream& >(stream);"):
            self.write({"src/execute/run.cc": f"// A run.\n{line}\n"})
            self.assert_fails(no_downcasts.check, "src/execute/run.cc:2:", "async_host_copies")


class TypedStreamsTest(RuleTest):
    def test_a_stream_is_a_stream(self):
        self.write({"src/graph/kernel.h": "#pragma once\nstruct Args {\n  Stream& stream;\n  void* workspace;\n};\n",
                    "src/graph/eager.cc": "void* stream;\n",
                    "src/backends/cuda/handle.h": "#pragma once\nvoid* stream();\n"})
        self.assert_passes(typed_streams.check)

    def test_an_untyped_stream_is_found(self):
        for line in ("void* stream = nullptr;", "void *stream;", "void run(void* const side_stream);",
                     "virtual void* stream() const;"):
            self.write({"src/graph/kernel.h": f"#pragma once\n{line}\n"})
            self.assert_fails(typed_streams.check, "src/graph/kernel.h:2:", "Stream&")
        self.write(GOOD)
        self.write({"include/lockstep/tensor/shape.h": "#pragma once\nvoid wait(void* stream);\n"})
        self.assert_fails(typed_streams.check, "include/lockstep/tensor/shape.h:2:")


class TreeTest(RuleTest):
    def test_rooms(self):
        rooms = {
            "include/lockstep/base/error.h": "base",
            "src/keras/layers/dense.cc": "keras",
            "src/ops/matmul/matmul.cc": "ops",
            "src/ops/matmul/matmul_cpu.cc": "backends/cpu",
            "src/ops/matmul/matmul_cpu_simd.cc": "backends/cpu",
            "src/ops/matmul/cpu.h": "backends/cpu",
            "src/ops/matmul/matmul_cuda.cu": "backends/cuda",
            "src/ops/reduce/occupancy.h": "ops",
            "src/backends/null/device.cc": "backends/null",
            "src/backends/loose.cc": None,
            "include/lockstep/lockstep.h": None,
            "src/loose.cc": None,
            "src/attic/old.cc": None,
        }
        self.assertEqual({path: tree.room_of(path) for path in rooms}, rooms)

    def test_includes_are_read_and_resolved(self):
        self.write({"src/base/a.cc": '/* x\n#include "base/no.h"\n*/\n# include <lockstep/base/error.h>\n'
                                     '#include "parallel.h"\n// #include "base/no.h"\n#include <vector>\n'})
        found = [(i.line, i.text, i.target) for i in tree.includes(self.root, "src/base/a.cc")]
        self.assertEqual(found, [(4, "lockstep/base/error.h", "include/lockstep/base/error.h"),
                                 (5, "parallel.h", "src/base/parallel.h"), (7, "vector", None)])

    def test_exit_status_and_report(self):
        script = pathlib.Path(__file__).parent / "words.py"
        good = subprocess.run([sys.executable, script, "--root", self.root], text=True, capture_output=True)
        self.assertEqual((good.returncode, good.stdout), (0, "words: 0 problems\n"))
        self.write({"src/base/utils.h": ""})
        bad = subprocess.run([sys.executable, script, "--root", self.root], text=True, capture_output=True)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("src/base/utils.h:1:", bad.stdout)
        self.assertTrue(bad.stdout.endswith("words: 1 problem\n"))


class RoomOrderTest(RuleTest):
    def test_good_tree(self):
        self.assert_passes(room_order.check)

    def test_public_header_that_looks_up(self):
        self.write({"include/lockstep/base/error.h": '#include "lockstep/tensor/shape.h"\n'})
        self.assert_fails(room_order.check, "include/lockstep/base/error.h:1:", "base may not include", "tensor")

    def test_source_that_looks_up(self):
        self.write({"src/tensor/shape.cc": '\n#include "graph/kernel.h"\n'})
        self.assert_fails(room_order.check, "src/tensor/shape.cc:2:", "tensor may not include", "graph")

    def test_op_that_includes_its_kernel(self):
        self.write({"src/ops/matmul/matmul_cpu.h": "", "src/ops/matmul/matmul.cc": '#include "matmul_cpu.h"\n'})
        self.assert_fails(room_order.check, "ops may not include", "backends/cpu")

    def test_backend_that_includes_another(self):
        self.write({"src/backends/null/device.cc": '#include "backends/cpu/primitive.h"\n'})
        self.assert_fails(room_order.check, "backends/null may not include", "backends/cpu")

    def test_nccl_stands_on_cuda_and_not_the_other_way(self):
        self.write({"src/backends/cuda/stream.h": "#pragma once\n",
                    "src/backends/nccl/library.h": '#pragma once\n#include "backends/cuda/stream.h"\n'})
        self.assert_passes(room_order.check)
        self.write({"src/backends/cuda/device.cc": '#include "backends/nccl/library.h"\n'})
        self.assert_fails(room_order.check, "backends/cuda may not include", "backends/nccl")

    def test_tool_that_includes_a_private_header(self):
        self.write({"src/cli/main.cc": '#include "graph/kernel.h"\n'})
        self.assert_fails(room_order.check, "cli sees public headers only")

    def test_library_that_includes_the_umbrella(self):
        self.write({"src/keras/model.cc": '#include "lockstep/lockstep.h"\n'})
        self.assert_fails(room_order.check, "src/keras/model.cc:1:", "umbrella")

    def test_file_outside_of_every_room(self):
        self.write({"src/attic/old.cc": ""})
        self.assert_fails(room_order.check, "src/attic/old.cc:1:", "no room")


class HeaderCyclesTest(RuleTest):
    def test_good_tree(self):
        self.assert_passes(header_cycles.check)

    def test_circle_of_two(self):
        self.write({"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/a.h"\n'})
        self.assert_fails(header_cycles.check, "src/base/a.h -> src/base/b.h -> src/base/a.h")

    def test_circle_behind_another_header(self):
        self.write({"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/c.h"\n',
                    "src/base/c.h": '#include "base/b.h"\n'})
        self.assert_fails(header_cycles.check, "src/base/b.h -> src/base/c.h -> src/base/b.h")

    def test_header_that_includes_itself(self):
        self.write({"src/base/a.h": '#include "a.h"\n'})
        self.assert_fails(header_cycles.check, "src/base/a.h -> src/base/a.h")


class PublicIncludesTest(RuleTest):
    def test_good_tree(self):
        self.assert_passes(public_includes.check)

    def test_third_party_header(self):
        self.write({"include/lockstep/base/log.h": "#include <fmt/format.h>\n"})
        self.assert_fails(public_includes.check, "include/lockstep/base/log.h:1:", "<fmt/format.h>", "neither")

    def test_operating_system_header(self):
        self.write({"include/lockstep/base/log.h": "#include <unistd.h>\n"})
        self.assert_fails(public_includes.check, "<unistd.h>", "neither")

    def test_private_header(self):
        self.write({"include/lockstep/base/log.h": '#include "base/parallel.h"\n'})
        self.assert_fails(public_includes.check, '"base/parallel.h"', "a private header")

    def test_header_that_does_not_exist(self):
        self.write({"include/lockstep/base/log.h": '#include "lockstep/base/sink.h"\n'})
        self.assert_fails(public_includes.check, "include/lockstep/base/log.h:1:", "does not exist")

    def test_relative_path(self):
        self.write({"include/lockstep/base/log.h": '#include "error.h"\n'})
        self.assert_fails(public_includes.check, '"error.h"', 'written "lockstep/...')


class OpNamesTest(RuleTest):
    def setUp(self):
        super().setUp()
        self.write({"src/graph/graph.h": "#pragma once\nextern const OpDef kConstant;  // a node\n"
                                         "extern const OpDef kIdentity;\n",
                    "src/ops/matmul/matmul.h": '#pragma once\n#include "graph/graph.h"\nextern const OpDef kMatmul,\n'
                                               "    kDot;\n",
                    "src/ops/matmul/matmul.cc": '#include "ops/matmul/matmul.h"\nconstinit const OpDef kMatmul{};\n'
                                                "constinit const OpDef kIdentity{};\n",
                    "src/ops/nn/dense_rewrites.cc": '#include "ops/matmul/matmul.h"\nauto* x = &kMatmul;\n',
                    "src/compile/passes.h": '#pragma once\n#include "ops/matmul/matmul.h"\n'})

    def test_good_tree(self):
        self.write({"src/compile/passes.cc": '#include "compile/passes.h"\n// unlike kMatmul\nauto* x = &kIdentity;\n',
                    "src/compile/passes_test.cc": '#include "ops/matmul/matmul.h"\nauto* x = &kMatmul;\n',
                    # Another constant of the same name, where the op's is not to be seen.
                    "src/backends/cpu/lowering.cc": "constexpr int kDot = 1;\nint x = kDot;\n"})
        self.assert_passes(op_names.check)

    def test_pass_that_names_an_op(self):
        self.write({"src/compile/passes.cc": '#include "ops/matmul/matmul.h"\n\nauto* x = &kDot;\n'})
        self.assert_fails(op_names.check, "src/compile/passes.cc:3:", "kDot")

    def test_op_that_is_seen_through_another_header(self):
        self.write({"src/backends/cuda/program.cc": '#include "compile/passes.h"\nauto* x = &lockstep::kMatmul;\n'})
        self.assert_fails(op_names.check, "src/backends/cuda/program.cc:2:", "kMatmul")

    def test_op_of_a_namespace_of_its_own(self):
        self.write({"src/ops/elementwise/ops.h": "namespace elementwise { extern const OpDef kTanh; }\n",
                    "src/compile/fuse.cc": '#include "ops/elementwise/ops.h"\nauto* x = &elementwise::kTanh;\n'})
        self.assert_fails(op_names.check, "src/compile/fuse.cc:2:", "kTanh")

    def test_op_that_is_declared_anew(self):
        self.write({"src/compile/passes.cc": "extern const OpDef kMatmul;\n"})
        self.assert_fails(op_names.check, "src/compile/passes.cc:1:", "kMatmul")

    def test_op_of_another_room(self):
        self.write({"src/compile/fusion.h": "#pragma once\nextern const OpDef kFused;\n",
                    "src/compile/fusion.cc": '#include "compile/fusion.h"\nconst OpDef kFused{};\n',
                    "src/compile/plan.cc": '#include "compile/fusion.h"\nauto* x = &kFused;\n',
                    "src/execute/kernels.cc": '#include "compile/fusion.h"\nconst RegisterKernel registered(kFused);\n'})
        self.assert_passes(op_names.check)
        self.write({"src/execute/run.cc": '#include "compile/fusion.h"\nauto* x = &compile::kFused;\n'})
        self.assert_fails(op_names.check, "src/execute/run.cc:2:", "kFused")

    def test_op_that_is_looked_up(self):
        self.write({"src/execute/run.cc": 'auto* add = find_op("add");\n'})
        self.assert_fails(op_names.check, "src/execute/run.cc:1:", '"add"')


class HeadersAloneTest(RuleTest):
    def test_good_tree_and_what_is_remembered(self):
        cache = self.root / "build" / "cache.json"
        self.assert_passes(files_alone.check, compiler=COMPILER, sources=False, cache=cache)
        # A header that was fine is compiled again as soon as anything below it changes.
        self.write({"include/lockstep/base/error.h": "#pragma once\nusing std::vector;\n"})
        problems = files_alone.check(self.root, argparse.Namespace(compiler=COMPILER, sources=False, cache=cache))
        self.assertEqual([problem.split(":")[0] for problem in problems], ["include/lockstep/base/error.h"])
        # What failed is not remembered as good.
        again = files_alone.check(self.root, argparse.Namespace(compiler=COMPILER, sources=False, cache=cache))
        self.assertEqual(len(again), 1)

    def test_header_that_lacks_an_include(self):
        self.write({"include/lockstep/base/log.h": "#pragma once\nstd::string last_line();\n"})
        self.assert_fails(files_alone.check, "include/lockstep/base/log.h:1:", "compile alone", compiler=COMPILER,
                          sources=False, cache=None)

    def test_source_that_lives_on_the_includes_of_its_neighbours(self):
        self.write({"src/base/lines.cc": "std::string last_line();\n", "src/base/lines_test.cc": "std::string other();\n"})
        self.assert_passes(files_alone.check, compiler=COMPILER, sources=False, cache=None)
        self.assert_fails(files_alone.check, "src/base/lines.cc:1:", "compile alone", compiler=COMPILER, sources=True,
                          cache=None)


# Finds what the file says is bad, itself or in the header that it includes, and writes down what it was asked for.
TIDY = """#!/bin/sh
if [ "$1" = --version ]; then echo 1; exit; fi
for file; do :; done
echo "$file" >> "$(dirname "$0")/read"
if grep -q broken "$file"; then echo 'the compiler is broken' >&2; exit 1; fi
grep -q bad "$(dirname "$0")/src/base/parallel.h" || exit 0
echo "$(dirname "$0")/src/base/parallel.h:2:1: error: bad [some-check]"
echo '    2 | bad'
exit 1
"""


class ClangTidyTest(RuleTest):
    def setUp(self):
        super().setUp()
        self.write({"tidy": TIDY, "tests/models/model.h": "#pragma once\n", "build/x.cc": "",
                    "build/units/x.cc": '#include "base/error.cc"\n',
                    "tests/model_test.cc": '#include "models/model.h"\n'})
        (self.root / "tidy").chmod(0o755)
        self.write({"build/compile_commands.json": json.dumps([
            {"directory": str(self.root / "build"), "file": str(self.root / path), "command": f"g++ -c {path} -o x.o"}
            for path in ("build/units/x.cc", "src/base/error_test.cc", "tests/model_test.cc", "build/x.cc",
                         "python/venv/site-packages/x/y.cc")])})

    def check(self, *only):
        return list(clang_tidy.check(self.root, argparse.Namespace(
            build=self.root / "build", tidy=str(self.root / "tidy"), extra=[], jobs=2, only=only,
            cache=self.root / "build" / "clean.json")))

    def read(self):
        """What was read since the last look."""
        file = self.root / "read"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return sorted(pathlib.Path(line).name for line in lines)

    def test_what_is_clean_is_read_again_when_it_changes(self):
        self.assertEqual(self.check(), [])
        self.assertEqual(self.read(), ["error_test.cc", "model_test.cc", "x.cc"])
        self.assertEqual(self.check(), [])
        self.assertEqual(self.read(), [])
        self.write({"tests/models/model.h": "#pragma once\nint x();\n"})
        self.assertEqual(self.check(), [])
        self.assertEqual(self.read(), ["model_test.cc"])
        self.write({".clang-tidy": "Checks: bugprone-*\n"})
        self.assertEqual(self.check("^src/.*_test"), [])
        self.assertEqual(self.read(), ["error_test.cc"])
        self.assertEqual(self.check("src/base/error.cc"), [])
        self.assertEqual(self.read(), ["x.cc"])

    def test_a_finding_counts_once_and_is_not_forgotten(self):
        self.write({"src/base/parallel.h": "#pragma once\nbad\n"})
        for _ in range(2):
            problems = self.check()
            self.assertEqual(problems, ["src/base/parallel.h:2:1: error: bad [some-check]\n    2 | bad"])
            self.assertIn("x.cc", self.read())

    def test_a_file_that_cannot_be_read_is_a_problem(self):
        self.write({"src/base/error_test.cc": "broken\n"})
        problems = self.check()
        self.assertEqual(len(problems), 1)
        self.assertIn("src/base/error_test.cc:1:", problems[0])
        self.assertIn("the compiler is broken", problems[0])


class WordsTest(RuleTest):
    def test_good_tree(self):
        self.assert_passes(words.check)

    def test_mark_of_unfinished_work(self):
        self.write({"src/base/error.cc": "\n// TO" "DO: the rest\n"})
        self.assert_fails(words.check, "src/base/error.cc:2:", "TO" "DO")

    def test_words_that_only_look_like_a_mark(self):
        self.write({"src/base/error.cc": "// mastodon, TO" "DOS, mktemp.XX" "XXXX\n"})
        self.assert_passes(words.check)

    def test_file_named_utils(self):
        self.write({"src/keras/utils.h": ""})
        self.assert_fails(words.check, "src/keras/utils.h:1:")

    def test_module_of_keras_named_utils(self):
        self.write({"python/lockstep/keras/utils.py": ""})
        self.assert_passes(words.check)

    def test_build_folder_and_binary_files_are_left_alone(self):
        self.write({"build/x.cc": "// FIX" "ME\n"})
        (self.root / "src/base/blob.bin").write_bytes(b"\xff\xfe\x00 TO" b"DO")
        self.assert_passes(words.check)


class SimdSymbolsTest(RuleTest):
    def compile(self, name, level, text):
        source = self.root / f"{name}.cc"
        source.write_text(text)
        target = self.root / f"{name}_{level}.o"
        subprocess.run([COMPILER, "-std=c++20", "-O0", f"-DLOCKSTEP_SIMD=simd_{level}", "-c", source, "-o", target],
                       check=True)
        return str(target)

    def test_good_and_bad_objects(self):
        shared = "inline int twice(int x) { return x + x; }\n"
        own = "namespace LOCKSTEP_SIMD { inline int once(int x) { return x; } int run(int x) { return once(x)%s; } }\n"
        v2 = self.compile("kernel", "v2", shared + own % "+ twice(x)")
        v4 = self.compile("kernel", "v4", shared + own % "+ twice(x)")
        self.assert_passes(simd_symbols.check, first=[v2], later=[v4])
        v2 = self.compile("kernel", "v2", own % "")
        self.assert_fails(simd_symbols.check, "twice(int)", first=[v2], later=[v4])


if __name__ == "__main__":
    if "--compiler" in sys.argv:
        position = sys.argv.index("--compiler")
        COMPILER = sys.argv[position + 1]
        del sys.argv[position:position + 2]
    unittest.main()
