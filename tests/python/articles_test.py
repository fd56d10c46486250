"""The programs of five articles on several devices, as they are written, on four logical CPUs.

The articles lie beside a checkout, in ../shared/seeds, or where LOCKSTEP_SEEDS says; without them the cases are skipped. What an
article leaves out ("...", "as in Example 1") is put in here, and nothing else is changed; IPython's `!command` is left out.
"""

import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEEDS = pathlib.Path(os.environ.get("LOCKSTEP_SEEDS") or ROOT.parent / "shared" / "seeds")

# What articles leave out, from the programs that they name.
MODEL = """
def create_model():
  model = tf.keras.models.Sequential([
      tf.keras.layers.Dense(10, activation='relu', input_shape=(10,)),
      tf.keras.layers.Dense(1, activation='sigmoid')
  ])
  return model
"""
DIGITS = """
import tensorflow as tf
(x_train, y_train), (x_test, y_test) = tf.keras.datasets.mnist.load_data()
x_train = x_train.reshape(60000, 784).astype('float32') / 255
y_train = tf.keras.utils.to_categorical(y_train, num_classes=10)
x_train, y_train = x_train[:2000], y_train[:2000]
"""
FIT = """
model = tf.keras.Sequential([
    tf.keras.layers.Dense(64, activation='relu', input_shape=(784,)),
    tf.keras.layers.Dense(10, activation='softmax')
])
model.compile(optimizer='adam', loss='categorical_crossentropy', metrics=['accuracy'])
model.fit(x_train, y_train, epochs=2)
"""


def programs(number):
    """The programs of an article, in their order."""
    article = next(SEEDS.glob(f"{number:03d}_*.txt")).read_text(encoding="utf-8", errors="replace")
    return re.findall(r"```python\n(.*?)```", article, re.DOTALL)


def indented(text, spaces):
    return "".join(" " * spaces + line + "\n" if line else "\n" for line in text.strip("\n").split("\n"))


def write_digits(folder):
    """Digits that are made, as the files of MNIST that load_data() looks for in its cache: nothing is downloaded."""
    import lockstep as tf
    sets = tf.keras.datasets.digits()
    folder.mkdir(parents=True)
    for name, (images, labels) in zip(("train", "t10k"), sets):
        header = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + labels.tobytes())


@unittest.skipUnless(SEEDS.is_dir(), f"the articles are not in {SEEDS}")
class Articles(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        write_digits(pathlib.Path(cls.cache.name) / "mnist")

    @classmethod
    def tearDownClass(cls):
        cls.cache.cleanup()

    def run_program(self, text, *, status=0, devices=4):
        """What the program prints."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "program.py"
            script.write_text(text)
            command = [sys.executable, "-B", "-m", "lockstep"] + (["--devices", str(devices)] if devices else [])
            done = subprocess.run(command + [str(script)], cwd=folder, capture_output=True, text=True, timeout=900,
                                  env={**os.environ, "LOCKSTEP_DATA_DIR": self.cache.name})
            self.assertEqual(done.returncode, status, done.stdout[-4000:] + done.stderr[-4000:])
            return done.stdout + done.stderr

    def assert_on_four_devices(self, printed):
        self.assertRegex(printed, r"\d+ steps on 4 replicas")

    # --- why is only one GPU being used ---

    def test_strategy_alone(self):
        self.run_program(programs(0)[0])

    def test_single_pipeline(self):
        self.assert_on_four_devices(self.run_program(programs(0)[1]))

    def test_model_outside_of_scope(self):
        program = programs(0)[2]
        line = 1 + program[:program.index("tf.keras.layers.Dense(10")].count("\n")
        printed = self.run_program(program, status=1)
        self.assertIn("belongs to no strategy, not to MirroredStrategy on /CPU:0, /CPU:1, /CPU:2, /CPU:3", printed)
        self.assertRegex(printed, r'variable "\w+/dense/kernel" made at \S*program\.py:\d+')
        self.assertRegex(printed, r"FailedPreconditionError: failed_precondition: run: .*\[program\.py:\d+\]")
        self.assertGreater(line, 0)

    # --- building gradients ---

    # Ten epochs over 60,000 digits, as the article has them.
    def test_fit_in_scope_Long(self):
        self.assert_on_four_devices(self.run_program(programs(1)[0]))

    def test_fit_model_outside_of_scope(self):
        loading = "\n".join(line[2:] for line in programs(1)[0].split("\n") if line.startswith(("  (x_", "  x_", "  y_")))
        program = programs(1)[1].replace("# ... data loading and preprocessing as in Example 1 ...", loading)
        printed = self.run_program(program, status=1)
        self.assertIn("fit: would use one device, while MirroredStrategy on /CPU:0, /CPU:1, /CPU:2, /CPU:3 is there", printed)
        self.assertRegex(printed, r"\[program\.py:\d+\]")

    def test_fall_back_Long(self):
        rest = programs(1)[0].split("strategy = tf.distribute.MirroredStrategy()")[1]
        text = programs(1)[2]
        text = text.replace("# ... (Rest of the code as in Example 1) ...", rest.strip().replace("\n", "\n    "))
        text = text.replace("# ... (Rest of the code, adapted for single-GPU use) ...", "pass")
        self.assert_on_four_devices(self.run_program(text))

    # --- inconsistent speed improvements ---

    def test_small_batches(self):
        self.assertIn("Epoch 10 completed", self.run_program(programs(2)[0]))

    def with_model(self, program):
        return program.replace("# Simple model definition remains unchanged (omitted for brevity)\n", MODEL)

    def test_prefetched(self):
        printed = self.run_program(self.with_model(programs(2)[1]))
        self.assertIn("Epoch 10 completed", printed)
        self.assert_on_four_devices(printed)

    def test_scaled_batch(self):
        self.assertIn("Epoch 10 completed", self.run_program(self.with_model(programs(2)[2])))

    # --- several GPUs ---

    def test_compiled_outside_of_scope(self):
        printed = self.run_program(programs(3)[0])
        self.assert_on_four_devices(printed)

    def test_compiled_step(self):
        printed = self.run_program(programs(3)[1])
        self.assertRegex(printed, r"Epoch: 1, Loss: PerReplica:\{")

    def test_checkpoints(self):
        printed = self.run_program(programs(3)[2])
        self.assertIn("Checkpoint saved at ./training_checkpoints/ckpt-1", printed)
        self.assertIn("Checkpoint restored.", printed)

    # --- code that does not use GPUs ---

    def test_device_by_name(self):
        printed = self.run_program(DIGITS + programs(4)[0], status=1, devices=None)
        self.assertIn('there is no device "/GPU:0"; there are: /CPU:0', printed)

    def test_visible_devices(self):
        self.run_program(DIGITS + programs(4)[1].replace("# ...", FIT), devices=None)

    def test_memory_growth(self):
        program = programs(4)[2].replace("# ...\n", FIT, 1)
        program = "\n".join(line for line in program.split("\n") if not line.startswith("!"))
        self.assertIn("GPU memory usage (after training):", self.run_program(DIGITS + program, devices=None))
