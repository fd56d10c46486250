"""Models whose steps are written in Python, and what their fit is called with: for several files of tests."""

import warnings

import numpy as np

import lockstep as tf
from lockstep import keras


class Evaluating:
    """Evaluation in Python that does what the engine's does; for any model."""

    def test_step(self, data):
        return super().test_step(data)


class Doubling(Evaluating):
    """The same, and predictions that are twice the model's."""

    def predict_step(self, data):
        return 2.0 * super().predict_step(data)


class Steps(Evaluating):
    """Steps in Python that do what the engine's do; for any model."""

    def train_step(self, data):
        return super().train_step(data)

    def predict_step(self, data):
        return super().predict_step(data)


class Own(Steps, keras.Sequential):
    """A model with them."""


class Far(keras.Sequential):
    """Evaluation and prediction of one's own, which are nothing like the engine's."""

    def test_step(self, data):
        return {"far": keras.ops.mean(data[0]) * 0.0 + 7.0}

    def predict_step(self, data):
        return {"far": super().predict_step(data) + 100.0, "also": data[:, :2]}


class Bad(keras.Sequential):
    """Steps that fail."""

    def train_step(self, data):
        raise KeyError("mine")

    test_step = predict_step = train_step


def numbers():
    generator = np.random.default_rng(0)
    return (generator.random((100, 4)).astype(np.float32), generator.integers(0, 2, (100, 1)).astype(np.float32),
            generator.random(100).astype(np.float32))


def made(cls=Own, **compiled):
    keras.utils.set_random_seed(1)
    model = cls([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(**{"optimizer": keras.optimizers.SGD(0.1), "loss": "mse", "metrics": ["mae"], **compiled})
    return model


def batches_of(x, y, size=16):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size)


# Arguments of fit; the data where it is not x and y.
def arguments():
    x, y, weights = numbers()
    return [{}, {"validation_split": 0.25}, {"validation_split": 0.25, "sample_weight": weights},
            {"data": (x.tolist(), y.tolist()), "validation_split": 0.1}, {"sample_weight": weights}, {"class_weight": {1: 3.0}},
            {"class_weight": {0: 0.5, 1: 3.0}, "sample_weight": weights}, {"data": (batches_of(x, y),)},
            {"data": (batches_of(x, y),), "class_weight": {1: 3.0}},
            {"validation_data": (x, y, weights), "validation_batch_size": 7, "validation_freq": 2},
            {"validation_data": [x, y], "validation_steps": 2}, {"validation_steps": 2}, {"steps_per_epoch": 3},
            {"validation_data": batches_of(x, y), "initial_epoch": 1},
            {"data": (batches_of(x, y, 20),), "steps_per_epoch": 2, "epochs": 5}, {"data": (batches_of(x, y).repeat(),), "steps_per_epoch": 2},
            {"weighted_metrics": ["mae"], "metrics": "mse", "sample_weight": weights}, {"epochs": 0}, {"batch_size": 100}]


def fitted(model, told, data, epochs=2, batch_size=16, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of data that ends
        history = model.fit(*data, epochs=epochs, batch_size=batch_size, shuffle=False, verbose=0, callbacks=told, **settings).history
    return history, model.evaluate(*data, batch_size=16, verbose=0, steps=settings.get("steps_per_epoch")), model.get_weights()
