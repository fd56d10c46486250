"""Programs in the manner of TensorFlow's and Keras' tutorials: each of programs/ runs by `python -m lockstep`, unmodified."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent / "programs"


class Programs(unittest.TestCase):
    def run_program(self, name, devices=4):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-B", "-m", "lockstep", "--devices", str(devices), "--threads", "1",
                                   str(FOLDER / f"{name}.py")], cwd=folder, capture_output=True, text=True, timeout=900)
            self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])

    def test_every_program_has_a_case(self):
        cases = {name.removeprefix("test_") for name in dir(self) if name.startswith("test_")}
        self.assertEqual({path.stem for path in FOLDER.glob("*.py")} - cases, set())

    def test_autodiff(self):
        self.run_program("autodiff")

    def test_autoencoder(self):
        self.run_program("autoencoder")

    def test_callbacks(self):
        self.run_program("callbacks")

    def test_checkpoints(self):
        self.run_program("checkpoints")

    def test_custom_layer(self):
        self.run_program("custom_layer")

    def test_custom_training_walkthrough(self):
        self.run_program("custom_training_walkthrough")

    def test_data_pipeline(self):
        self.run_program("data_pipeline")

    def test_distributed_loop(self):
        for devices in (1, 4):
            self.run_program("distributed_loop", devices)

    def test_functional_toy_resnet(self):
        self.run_program("functional_toy_resnet")

    def test_gan(self):
        self.run_program("gan")

    def test_gradient_clipping_loop(self):
        self.run_program("gradient_clipping_loop")

    def test_imbalanced(self):
        self.run_program("imbalanced")

    def test_learning_rate(self):
        self.run_program("learning_rate")

    def test_mirrored_fit(self):
        self.run_program("mirrored_fit")

    def test_mixed_precision(self):
        self.run_program("mixed_precision")

    def test_multi_worker(self):
        self.run_program("multi_worker")

    def test_quickstart(self):
        self.run_program("quickstart")

    def test_quickstart_for_experts(self):
        self.run_program("quickstart_for_experts")

    def test_regression(self):
        self.run_program("regression")

    def test_several_outputs(self):
        self.run_program("several_outputs")

    def test_text_classification(self):
        self.run_program("text_classification")

    def test_text_models(self):
        self.run_program("text_models")

    def test_tf_function(self):
        self.run_program("tf_function")

    def test_time_series(self):
        self.run_program("time_series")

    def test_transfer_learning(self):
        self.run_program("transfer_learning")

    def test_transformer(self):
        self.run_program("transformer")

    def test_vae(self):
        self.run_program("vae")
