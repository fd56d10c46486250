"""What is recorded of Keras' own tests is what the documentation says."""

import json
import pathlib
import unittest

import keras_front
import keras_own_tests

ROOT = pathlib.Path(__file__).resolve().parents[2]


class KerasOwnTests(unittest.TestCase):
    def test_the_table_of_the_documentation_is_the_record(self):
        record = json.loads(keras_own_tests.RECORD.read_text())
        text = (ROOT / "docs" / "keras.md").read_text()
        self.assertIn(keras_own_tests.table(record["files"]), text, "docs/keras.md has what keras_own_tests.py --table prints")
        self.assertIn(f"Keras {record['keras']}", text)

    def test_a_file_that_passes_less_often_is_told(self):
        recorded = {"losses/losses_test.py": {"passed": 5, "failed": 1}}
        self.assertEqual(keras_own_tests.worse(recorded, {"losses/losses_test.py": {"passed": 5, "failed": 2}}), [])
        self.assertIn("4 passed", keras_own_tests.worse(recorded, {"losses/losses_test.py": {"passed": 4}})[0])

    def test_reasons_are_told_apart(self):
        def reason(raised):
            try:
                raised()
            except Exception as error:
                return keras_own_tests.reason_of(error)[0]
        missing = keras_front.Missing("there is no keras.layers.New", keras_front.Absent)
        private = keras_front.Missing("keras.src.x is not public", keras_front.NotApplicable)
        self.assertEqual(reason(missing), "absent")
        self.assertEqual(reason(lambda: private.part()), "not applicable")
        self.assertEqual(reason(lambda: isinstance(3, private)), "not applicable")
        self.assertEqual(reason(lambda: self.assertEqual(1, 2)), "failed")
