"""Writes testdata/applications.json: what Keras' networks of images are made of, and what they compute.

    python tests/python/record_applications.py

For every network the number of its layers and weights, a digest of classes, names and shapes in their order, and a few numbers of
its output for weights and an image by formula (`weight` and `image` below, which applications_test.py has as well). Needs keras.
"""

import json
import pathlib

import keras

import applications_test as formulas

TARGET = pathlib.Path(__file__).resolve().parent / "testdata" / "applications.json"


def main():
    recorded = {"recorded_with": f"keras {keras.__version__} on {keras.backend.backend()}"}
    for name in formulas.NETWORKS:
        keras.backend.clear_session()
        make = getattr(keras.applications, name)
        facts = formulas.facts_of(make(weights=None))
        keras.backend.clear_session()
        facts["without_top"] = formulas.facts_of(make(weights=None, include_top=False, input_shape=(None, None, 3), pooling="avg"))
        facts["features"] = formulas.features_of(make(weights=None, include_top=False, input_shape=formulas.IMAGE, pooling="avg"))
        recorded[name] = facts
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in recorded.items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
