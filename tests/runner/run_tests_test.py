"""run_tests.py, seen running the program of cases.cc and some commands."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import run_tests

PROGRAM = ""


class RunTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        self.write()

    def write(self, commands=(), patience=600):
        (self.build / "tests.json").write_text(json.dumps({
            "environment": {}, "patience": patience, "programs": [{"room": "zoo", "program": PROGRAM}],
            "commands": list(commands)}))

    def run_tests(self, *arguments, status=0, environment=None):
        """What was printed, as lines."""
        done = subprocess.run([sys.executable, run_tests.__file__, "--build", str(self.build), *arguments],
                              env=os.environ | (environment or {}), capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return (done.stdout + done.stderr).splitlines()

    def verdicts(self):
        cases = json.loads((self.build / "test_results.json").read_text())["cases"]
        return {case["name"]: case["status"] for case in cases}

    def test_cases_that_pass_are_counted(self):
        lines = self.run_tests("-R", "Passes")
        self.assertEqual(lines[-1], "5 passed, 0 failed, 0 skipped")
        self.assertEqual(self.verdicts(), dict.fromkeys(
            ["zoo.Passes.First", "zoo.Passes.Second", "zoo.Passes.PrintsWithoutANewline",
             "zoo.PassesOwnProcess.First", "zoo.PassesOwnProcess.Second"], "passed"))

    def test_a_failure_is_named_with_its_text_and_named_again_at_the_end(self):
        lines = self.run_tests("-R", "Numbers", status=1)
        self.assertEqual(lines[-1], "2 passed, 1 failed, 0 skipped")
        self.assertIn("FAILED zoo.All/Numbers.AreBelowTwo/2", lines)
        self.assertIn("what the number was compared with", lines)
        self.assertEqual(lines[lines.index("Failed:") + 1], "  zoo.All/Numbers.AreBelowTwo/2")

    def test_skipped_cases_are_grouped_by_reason(self):
        lines = self.run_tests("-R", "Skips")
        self.assertEqual(lines[-1], "0 passed, 0 failed, 2 skipped")
        self.assertIn("      2  zoo: there is no such device", lines)

    def test_a_crash_fails_its_case_and_those_behind_it_run(self):
        lines = self.run_tests("-R", "Crashes", status=1)
        self.assertEqual(self.verdicts(), {"zoo.Crashes.Before": "passed", "zoo.Crashes.Here": "failed",
                                           "zoo.Crashes.HereToo": "failed", "zoo.Crashes.Behind": "passed"})
        self.assertIn("the last words", lines)
        self.assertIn("The process ended inside this case: signal SIGKILL.", lines)
        self.assertIn("The process ended inside this case: signal SIGABRT.", lines)

    def test_a_process_that_leaves_early_passes_nothing_by_it(self):
        self.run_tests("-R", "Leaves", status=1)
        self.assertEqual(self.verdicts(), {"zoo.Leaves.WithStatusZero": "failed", "zoo.Leaves.Behind": "passed"})

    def test_a_process_that_hangs_is_ended(self):
        self.write(patience=3)
        lines = self.run_tests("-R", "Hangs", status=1)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        self.assertTrue(any("taken to hang" in line for line in lines), lines)

    def test_a_process_that_fails_after_its_cases_is_a_failure(self):
        lines = self.run_tests("-R", "Afterwards", status=1)
        self.assertEqual(self.verdicts(), {"zoo.Afterwards.TheProcessFails": "passed",
                                           "zoo.(process)": "failed"})
        self.assertTrue(any("exit status 7 after cases that passed" in line for line in lines), lines)

    def test_a_program_that_runs_none_of_its_cases_fails_them(self):
        processes = run_tests.Processes(self.build, dict(os.environ), 600)
        cases = [run_tests.Case("zoo", PROGRAM, "No.Such"), run_tests.Case("zoo", PROGRAM, "Passes.First")]
        self.assertEqual({verdict.name: verdict.status for verdict in run_tests.run_shard(processes, cases)},
                         {"zoo.No.Such": "failed", "zoo.Passes.First": "passed"})

    def test_a_program_that_cannot_start_is_an_error(self):
        self.write()
        manifest = json.loads((self.build / "tests.json").read_text())
        manifest["programs"].append({"room": "broken", "program": "/bin/false"})
        (self.build / "tests.json").write_text(json.dumps(manifest))
        lines = self.run_tests(status=1)
        self.assertTrue(any("/bin/false cannot list its cases" in line for line in lines), lines)

    def test_nothing_to_run_is_an_error(self):
        (self.build / "test_results.json").write_text("of an earlier run")
        self.run_tests("-R", "no such name", status=1)
        self.assertFalse((self.build / "test_results.json").exists())

    def test_long_cases_run_alone(self):
        self.run_tests("--long")
        self.assertEqual(self.verdicts(), {"zoo.Passes.LongOne": "passed"})

    def test_an_unknown_room_is_an_error_that_lists_them(self):
        lines = self.run_tests("-L", "ocean", status=1)
        self.assertIn("Error: there is no room 'ocean'; the rooms with tests are zoo", lines)

    def test_names_and_rooms_narrow_together(self):
        self.write([{"name": "rules.Passes", "room": "rules", "command": ["true"]}])
        self.assertEqual(self.run_tests("-N", "-L", "zoo", "-R", "Passes.F", "-R", "Behind", "-E", "Leaves"),
                         ["zoo.Passes.First", "zoo.Crashes.Behind", "zoo.Hangs.Behind"])
        self.assertEqual(self.run_tests("-N", "-L", "rules"), ["rules.Passes"])

    def test_the_environment_of_the_caller_changes_no_choice(self):
        lines = self.run_tests("-R", "Passes", environment={"GTEST_FILTER": "Skips.*", "GTEST_TOTAL_SHARDS": "2",
                                                           "GTEST_SHARD_INDEX": "1", "GTEST_BRIEF": "1"})
        self.assertEqual(lines[-1], "5 passed, 0 failed, 0 skipped")

    def test_commands_come_after_each_other_and_not_after_a_failure(self):
        self.write([{"name": "package.make", "room": "package", "command": ["sh", "-c", "echo no room; exit 3"]},
                    {"name": "rules.words", "room": "rules", "command": ["true"]},
                    {"name": "package.use", "room": "package", "after": "package.make", "command": ["true"]}])
        lines = self.run_tests("-R", "package.use|rules", status=1)
        self.assertEqual(self.verdicts(), {"package.make": "failed", "package.use": "failed",
                                           "rules.words": "passed"})
        self.assertIn("no room", lines)
        self.assertIn("Not run: package.make comes before it and failed.", lines)

    def test_shards_hold_every_case_once_and_deal_them_out(self):
        cases = [run_tests.Case("zoo", PROGRAM, f"S.C{number}") for number in range(250)]
        cases.append(run_tests.Case("zoo", PROGRAM, "AlsoOwnProcess.C"))
        dealt = run_tests.shards(cases)
        self.assertEqual([len(shard) for shard in dealt], [84, 83, 83, 1])
        self.assertEqual(sorted(case for shard in dealt for case in shard), sorted(cases))
        long_names = [run_tests.Case("zoo", PROGRAM, f"S.{'x' * 3000}{number}") for number in range(99)]
        self.assertEqual(len(run_tests.shards(long_names)), 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    options, rest = parser.parse_known_args()
    PROGRAM = options.program
    unittest.main(argv=[sys.argv[0], *rest])
