"""Models that take texts: what they compute is what their layers give one after another, in training, in files and in copies."""

import json
import pathlib
import tempfile
import unittest
import zipfile

import numpy as np

import lockstep as tf
from lockstep import keras
from own_steps import Doubling, Evaluating, Steps

layers = keras.layers
DATA = pathlib.Path(__file__).resolve().parent / "testdata"
REVIEWS = ["the movie was great", "it was a bad film", "great great", "bad bad bad", "i loved it", "hated it \u00e9"] * 8
LABELS = np.array([1, 0, 1, 0, 1, 0] * 8, np.float32)


def vectorized(**settings):
    layer = layers.TextVectorization(max_tokens=30, **settings)
    layer.adapt(REVIEWS)
    return layer


def reviewer(vectorize, shape=(1,), cls=keras.Model):
    """A small model, the same every time."""
    keras.utils.set_random_seed(3)
    review = keras.Input(shape, dtype="string", name="review")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(30, 4)(vectorize(review)))
    model = cls(review, layers.Dense(1, activation="sigmoid")(x))
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    return model


def by_hand(model, texts):
    """What the layers of a chain give, one after another."""
    value = texts
    for layer in model.layers:
        value = value if isinstance(layer, layers.InputLayer) else layer(value)
    return value.numpy()


def predicted(model, x):
    return model.predict(x, verbose=0)


def mixed():
    """Texts and numbers together."""
    title, size, kind = keras.Input((1,), dtype="string", name="title"), keras.Input((3,), name="size"), keras.Input((1,), dtype="int32", name="kind")
    parts = [layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(title), size,
             layers.CategoryEncoding(7, output_mode="one_hot")(layers.Hashing(7)(title)),
             layers.HashedCrossing(5, output_mode="one_hot")([title, kind])]
    return keras.Model({"title": title, "size": size, "kind": kind}, layers.Dense(2)(layers.Concatenate()(parts)))


MIXED = {"title": np.array(["a", "b", "q", "zz"]), "size": np.arange(12, dtype=np.float32).reshape(4, 3), "kind": np.array([1, 2, 3, 4], np.int32)}


def mixed_by_hand(model):
    title, kind = MIXED["title"], MIXED["kind"]
    layer = {type(layer).__name__: layer for layer in model.layers}
    parts = [layer["StringLookup"](title).numpy(), MIXED["size"], np.eye(7)[layer["Hashing"](title).numpy()], layer["HashedCrossing"]([title, kind]).numpy()]
    return np.concatenate(parts, 1).astype(np.float32) @ layer["Dense"].kernel.numpy() + layer["Dense"].bias.numpy()


class OwnStep(keras.Model):
    def train_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return self.compute_metrics(x, y, y_pred, sample_weight)


class OwnSteps(Doubling, OwnStep):
    pass


class OwnTest(Evaluating, keras.Model):
    pass


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 2.0 * super().compute_loss(x, y, y_pred, sample_weight, training)


@keras.saving.register_keras_serializable("TextModels")
class Reader(keras.Model):
    """Texts in a call() of one's own, with numbers beside them."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.vectorize = layers.TextVectorization(max_tokens=30, output_sequence_length=5)
        self.kinds = layers.StringLookup(vocabulary=["A", "B"], output_mode="one_hot")
        self.embed, self.pool, self.out = layers.Embedding(30, 4), layers.GlobalAveragePooling1D(), layers.Dense(1)

    def call(self, x, training=False):
        review = self.pool(self.embed(self.vectorize(x["review"])))
        return self.out(tf.concat([review, self.kinds(tf.strings.upper(x["kind"])[:, 0]), x["size"]], 1))


@keras.saving.register_keras_serializable("TextModels")
class Plain(keras.Model):
    """A call() of texts alone."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.vectorize = layers.TextVectorization(max_tokens=30, output_sequence_length=5)
        self.embed, self.pool, self.out = layers.Embedding(30, 4), layers.GlobalAveragePooling1D(), layers.Dense(1)

    def call(self, texts):
        return self.out(self.pool(self.embed(self.vectorize(texts))))


class PlainWithSteps(Steps, Plain):
    pass


@keras.saving.register_keras_serializable("TextModels")
def shouting(texts):
    return tf.strings.upper(texts)


class TextModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        keras.utils.set_random_seed(5)

    def same(self, one, other):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))

    def test_texts_in_any_form_are_what_the_layers_make_of_them(self):
        model = reviewer(vectorized(output_sequence_length=5))
        expected = by_hand(model, REVIEWS)
        array = np.array(REVIEWS)
        for texts in (REVIEWS, array, array.astype(object), np.char.encode(array, "utf-8"), array[:, None], tf.constant(REVIEWS), [array],
                      {"review": array}):
            self.same(predicted(model, texts), expected)
            self.same(model(texts), expected)
        self.same(model.predict_on_batch(array), expected)
        self.same(predicted(model, tf.data.Dataset.from_tensor_slices(REVIEWS).batch(7)), expected)
        self.same(model(tf.constant(["great"])), by_hand(model, ["great"]))
        self.same(predicted(reviewer(vectorized(output_sequence_length=5), shape=()), array), expected)

    def test_training_on_texts_is_training_on_their_numbers(self):
        vectorize = vectorized(output_sequence_length=5)
        keras.utils.set_random_seed(3)
        row = keras.Input((5,), dtype="int64")
        of_numbers = keras.Model(row, layers.Dense(1, activation="sigmoid")(layers.GlobalAveragePooling1D()(layers.Embedding(30, 4)(row))))
        of_numbers.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
        settings = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}
        expected = of_numbers.fit(vectorize(REVIEWS), LABELS, **settings).history
        model = reviewer(vectorize)
        self.assertEqual(model.fit(np.array(REVIEWS), LABELS, **settings).history, expected)
        batches = tf.data.Dataset.from_tensor_slices((REVIEWS, LABELS)).batch(8)
        self.assertEqual(reviewer(vectorize).fit(batches, epochs=3, verbose=0).history, expected)
        self.assertEqual(reviewer(vectorize, cls=OwnStep).fit(batches, epochs=3, verbose=0).history, expected)
        self.assertEqual(model.evaluate(batches, verbose=0), of_numbers.evaluate(vectorize(REVIEWS), LABELS, 8, verbose=0))
        self.assertEqual(model.train_on_batch(np.array(REVIEWS), LABELS), of_numbers.train_on_batch(vectorize(REVIEWS), LABELS))
        validated = reviewer(vectorize).fit(REVIEWS, LABELS, validation_data=batches, validation_freq=1, verbose=0).history
        self.assertEqual(set(validated), {"loss", "accuracy", "val_loss", "val_accuracy"})

    def test_steps_of_ones_own_are_given_the_numbers_of_texts(self):
        vectorize = vectorized(output_sequence_length=5)
        rows, review, x, weights = keras.Input((5,), dtype="int64"), keras.Input((1,), dtype="string"), np.array(REVIEWS), np.linspace(0.5, 2, 48)
        batches = tf.data.Dataset.from_tensor_slices((REVIEWS, LABELS)).batch(8)

        def made(cls, begin, **compiled):
            keras.utils.set_random_seed(3)
            value = vectorize(begin) if begin is review else begin
            model = cls(begin, layers.Dense(1, activation="sigmoid")(layers.GlobalAveragePooling1D()(layers.Embedding(30, 4)(value))))
            model.compile(**{"optimizer": keras.optimizers.Adam(0.05), "loss": "binary_crossentropy", "metrics": ["accuracy"], **compiled})
            return model

        def values(model, to_data):
            """What everything that trains, evaluates or predicts gives."""
            def fitted(x, *y, **settings):
                return model.fit(to_data(x), *y, **{"epochs": 2, "batch_size": 7, "shuffle": False, "verbose": 0, **settings}).history
            given, some = to_data(x), to_data(x[:6])
            return [fitted(x, LABELS, validation_data=(given, LABELS)), fitted(x, LABELS, validation_data=(given, LABELS, weights), validation_freq=2),
                    fitted(x, LABELS, validation_split=0.25, sample_weight=weights), fitted(batches, validation_data=to_data(batches)),
                    fitted(x, LABELS, class_weight={0: 1.0, 1: 3.0}, validation_data=to_data(batches)),
                    model.evaluate(given, LABELS, verbose=0), model.evaluate(to_data(batches), verbose=0), model.test_on_batch(some, LABELS[:6]),
                    model.train_on_batch(some, LABELS[:6], class_weight={0: 1.0, 1: 3.0}), model.train_on_batch(some, LABELS[:6], weights[:6]),
                    *(np.asarray(value).tolist() for value in (
                        model.predict(given, 7, verbose=0), model.predict(to_data(batches.map(lambda x, y: x)), verbose=0),
                        model.predict_on_batch(some), *model.get_weights()))]

        def by_hand(x):
            if not isinstance(x, np.ndarray):
                return x.map(lambda text, *label: (vectorize(text), *label) if label else vectorize(text))
            return vectorize(x).numpy()
        for cls in (OwnStep, OwnSteps, OwnTest, OwnLoss):
            for compiled in ({}, {"weighted_metrics": ["mae"]}, {"run_eagerly": True}):
                with self.subTest(cls.__name__, **compiled):
                    self.assertEqual(values(made(cls, review, **compiled), lambda x: x), values(made(cls, rows, **compiled), by_hand))
        for cls in (keras.Model, OwnSteps):
            stopping = keras.callbacks.EarlyStopping("loss", min_delta=10.0)
            model = made(cls, review)
            self.assertEqual(len(model.fit(x, LABELS, epochs=5, verbose=0, callbacks=[stopping]).epoch), 2)
            self.assertTrue(model.stop_training)
            self.assertEqual(len(model.fit(x, LABELS, epochs=3, verbose=0).epoch), 3)

    def test_steps_of_ones_own_and_a_call_of_ones_own(self):
        def made(cls):
            keras.utils.set_random_seed(3)
            model = cls()
            model.vectorize.adapt(REVIEWS)
            model.compile("adam", "mse")
            model(REVIEWS)
            return model
        x, y, batches = np.array(REVIEWS), LABELS[:, None], tf.data.Dataset.from_tensor_slices((REVIEWS, LABELS[:, None])).batch(8)
        one, other = made(PlainWithSteps), made(Plain)
        for data in ((x, y), (batches,)):
            expected = other.fit(*data, shuffle=False, verbose=0, validation_data=(x, y)).history
            for name, value in one.fit(*data, shuffle=False, verbose=0, validation_data=(x, y)).history.items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-5, err_msg=name)
            np.testing.assert_allclose(one.evaluate(*data, verbose=0), other.evaluate(*data, verbose=0), rtol=1e-5)
        np.testing.assert_allclose(one.train_on_batch(x[:5], y[:5]), other.train_on_batch(x[:5], y[:5]), rtol=1e-5)
        np.testing.assert_allclose(predicted(one, x), predicted(other, x), rtol=1e-4)
        self.same(one.predict_on_batch(x), one(x))

    def test_generators_and_sequences_of_batches(self):
        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return 3

            def __getitem__(self, number):
                return np.array(REVIEWS[8 * number:8 * number + 8]), LABELS[:8]
        model, batches = reviewer(vectorized(output_sequence_length=5)), Batches()
        self.same(predicted(model, batches), by_hand(model, REVIEWS[:24]))
        self.assertEqual(len(model.fit((batches[0] for _ in range(6)), steps_per_epoch=3, epochs=2, verbose=0).history["loss"]), 2)

    def test_a_layer_of_texts_in_front_of_a_trained_model(self):
        vectorize = vectorized(output_sequence_length=5)
        trained = keras.Sequential([layers.Embedding(30, 4), layers.GlobalAveragePooling1D(), layers.Dense(1)])
        trained.compile("adam", "mse")
        trained.fit(vectorize(REVIEWS), LABELS, verbose=0)
        exported = keras.Sequential([vectorize, trained, layers.Activation("sigmoid")])
        exported.compile("adam", "binary_crossentropy", metrics=["accuracy"])
        batches = tf.data.Dataset.from_tensor_slices((REVIEWS, LABELS)).batch(8)
        scores = tf.sigmoid(trained(vectorize(REVIEWS))).numpy()
        self.assertAlmostEqual(exported.evaluate(batches, verbose=0)[1], np.mean((scores[:, 0] > 0.5) == LABELS), places=6)
        self.same(predicted(exported, tf.constant(REVIEWS)), scores)
        self.assertEqual([layer.name for layer in exported.layers], [vectorize.name, trained.name, exported.layers[2].name])
        self.assertEqual(exported.inputs[0].dtype, tf.string)
        for begin in (keras.Input((1,), dtype=tf.string), layers.InputLayer(shape=(1,), dtype="string")):
            self.same(predicted(keras.Sequential([begin, vectorize]), REVIEWS), vectorize(REVIEWS))
        around = keras.Sequential([keras.Sequential([vectorize, layers.Embedding(30, 2)]), layers.Flatten()])
        self.same(predicted(around, REVIEWS), np.reshape(around.layers[0].layers[1](vectorize(REVIEWS)), (48, 10)))

    def test_texts_and_numbers_by_name(self):
        model = mixed()
        expected = mixed_by_hand(model)
        np.testing.assert_allclose(predicted(model, MIXED), expected, rtol=1e-6)
        np.testing.assert_allclose(model({name: tf.constant(value) for name, value in MIXED.items()}), expected, rtol=1e-6)
        batches = tf.data.Dataset.from_tensor_slices((MIXED, np.zeros((4, 2), np.float32))).batch(3)
        np.testing.assert_allclose(predicted(model, batches.map(lambda x, y: x)), expected, rtol=1e-6)
        model.compile("sgd", "mse")
        model.fit(batches, verbose=0)
        self.assertGreater(np.abs(predicted(model, MIXED) - expected).max(), 1e-5)
        order = keras.Model(model.inputs, model.output)
        np.testing.assert_allclose(predicted(order, [MIXED[value.name] for value in order.inputs]), mixed_by_hand(model), rtol=1e-6)

    def test_numbers_that_a_layer_of_texts_is_given_are_computed_on_the_host(self):
        title, size = keras.Input((1,), dtype="string", name="title"), keras.Input((1,), name="size")
        bins, crossing = layers.Discretization([0.5, 1.5]), layers.HashedCrossing(11, output_mode="one_hot")
        model = keras.Model([title, size], layers.Concatenate()([crossing([title, bins(size)]), size]))
        titles, sizes = np.array(["a", "b", "a"]), np.array([[0.0], [1.0], [2.0]], np.float32)
        expected = np.concatenate([crossing([titles[:, None], bins(sizes)]).numpy(), sizes], 1)
        self.same(predicted(model, [titles, sizes]), expected)
        alone = keras.Input((2,), dtype="int32")
        self.same(predicted(keras.Model(alone, layers.Hashing(5)(alone)), np.array([[1, 2], [3, 4]])), layers.Hashing(5)(np.array([[1, 2], [3, 4]])))

    def test_a_lookup_without_numbers_for_unknown_tokens(self):
        kind = keras.Input((), dtype="string")
        model = keras.Model(kind, layers.StringLookup(vocabulary=["x", "y"], mask_token=None, num_oov_indices=0)(kind))
        self.assertEqual(predicted(model, np.array(["y", "x"])).tolist(), [1, 0])

    def test_texts_move_between_inputs_and_layers(self):
        pair = keras.Input((2,), dtype="string")
        lookup = layers.StringLookup(vocabulary=["a", "b", "c"])
        model = keras.Model(pair, [lookup(pair[:, 0]), lookup(keras.ops.expand_dims(pair[:, 1], -1)), lookup(keras.ops.reshape(pair, (-1, 1, 2)))])
        first, second, both = predicted(model, np.array([["a", "b"], ["c", "z"]]))
        self.assertEqual((first.tolist(), second.tolist(), both.tolist()), ([1, 3], [[2], [0]], [[[1, 2]], [[3, 0]]]))

    def test_models_of_texts_inside_of_models(self):
        vectorize = vectorized(output_sequence_length=5)
        text = keras.Input((), dtype="string")
        preprocess = keras.Model(text, vectorize(keras.ops.expand_dims(text, -1)))
        training = keras.Sequential([keras.Input((5,), dtype="int64"), layers.Embedding(30, 4), layers.Flatten(), layers.Dense(1)])
        title = keras.Input((), dtype="string", name="title")
        inference = keras.Model(title, training(preprocess(title)))
        self.same(predicted(preprocess, REVIEWS), vectorize(REVIEWS))
        self.same(predicted(inference, REVIEWS), training(vectorize(REVIEWS)))
        features = keras.Model(inference.input, inference.get_layer(preprocess.name)(inference.input))
        self.same(predicted(features, REVIEWS), vectorize(REVIEWS))
        size, other = keras.Input((2,), name="size"), keras.Input((1,), dtype="string")
        inner = keras.Model({"text": other, "size": size}, layers.Concatenate()([layers.StringLookup(vocabulary=["a"], output_mode="one_hot")(other), size]))
        begin, word = keras.Input((2,)), keras.Input((1,), dtype="string")
        double = layers.Rescaling(2.0)
        outer = keras.Model([begin, word], inner({"text": word, "size": double(begin)}))
        self.same(predicted(outer, [np.ones((2, 2), np.float32), np.array(["a", "b"])]), [[0, 1, 2, 2], [1, 0, 2, 2]])

    def test_the_same_result_after_files_copies_and_configurations(self):
        vectorize = vectorized(output_sequence_length=5)
        text = keras.Input((), dtype="string")
        inside = keras.Model(text, [vectorize(keras.ops.expand_dims(text, -1)), vectorized(output_mode="tf_idf")(text)])
        title = keras.Input((), dtype="string", name="title")
        rows, counts = inside(title)
        nested = keras.Model(title, layers.Dense(2)(layers.Concatenate()([layers.Flatten()(layers.Embedding(30, 2)(rows)), counts])))
        chain = keras.Sequential([vectorized(standardize=shouting, output_sequence_length=4), layers.Embedding(30, 2), layers.Flatten(), layers.Dense(1)])
        chain.predict(REVIEWS, verbose=0)
        for name, model, x in (("chain", chain, REVIEWS), ("mixed", mixed(), MIXED), ("nested", nested, REVIEWS)):
            with self.subTest(name):
                expected = predicted(model, x)
                copies = [keras.models.clone_model(model), type(model).from_config(model.get_config()), keras.models.model_from_json(model.to_json(indent=1)),
                          keras.models.clone_model(model, clone_function=lambda layer: type(layer).from_config(layer.get_config()))]
                for copy in copies:
                    predicted(copy, x)
                    copy.set_weights(model.get_weights())
                    self.same(predicted(copy, x), expected)
                    self.assertEqual(copy.input_names, model.input_names)
                for ending in ("keras", "h5"):
                    path = self.folder / f"{name}.{ending}"
                    model.save(path)
                    read = keras.models.load_model(path)
                    self.same(predicted(read, x), expected)
                    self.assertEqual([value.dtype for value in read.inputs], [value.dtype for value in model.inputs])

    def test_a_file_is_in_keras_form_and_goes_on_training(self):
        model = reviewer(vectorized(output_sequence_length=5))
        model.fit(np.array(REVIEWS), LABELS, verbose=0)
        path = self.folder / "model.keras"
        model.save(path)
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))["config"]
            vocabulary = archive.read("assets/layers/text_vectorization/vocabulary.txt").decode().split("\n")
        begin, second = config["layers"][:2]
        self.assertEqual((begin["class_name"], begin["config"]["dtype"], begin["config"]["batch_shape"]), ("InputLayer", "string", [None, 1]))
        self.assertEqual((second["module"], second["class_name"]), ("keras.layers", "TextVectorization"))
        self.assertEqual(second["inbound_nodes"][0]["args"][0]["config"], {"shape": [None, 1], "dtype": "string", "keras_history": ["review", 0, 0]})
        self.assertEqual(vocabulary, model.layers[1].get_vocabulary())
        read = keras.models.load_model(path)
        self.assertEqual(read.evaluate(np.array(REVIEWS), LABELS, verbose=0), model.evaluate(np.array(REVIEWS), LABELS, verbose=0))
        for one in (model, read):
            one.fit(np.array(REVIEWS), LABELS, shuffle=False, verbose=0)
        self.same(predicted(read, REVIEWS), predicted(model, REVIEWS))

    def test_a_file_of_keras_predicts_what_keras_did(self):
        model = keras.models.load_model(DATA / "text_model.keras")
        recorded = json.loads((DATA / "text_model.json").read_text())
        given = {name: np.array(value) for name, value in recorded["given"].items()}
        given["size"] = given["size"].astype(np.float32)
        np.testing.assert_allclose(predicted(model, given), recorded["predicted"], rtol=2e-5, atol=1e-6)
        path = self.folder / "again.keras"
        model.save(path)
        self.same(predicted(keras.models.load_model(path), given), predicted(model, given))

    def test_a_call_of_ones_own_begins_with_texts(self):
        model = Reader()
        model.vectorize.adapt(REVIEWS)
        x = {"review": np.array(REVIEWS), "kind": np.array(["a", "b", "c"] * 16)[:, None], "size": np.linspace(0, 1, 96, dtype=np.float32).reshape(48, 2)}
        review = model.pool(model.embed(model.vectorize(REVIEWS)))
        kinds = tf.cast(model.kinds(np.char.upper(x["kind"][:, 0])), tf.float32)
        expected = model.out(tf.concat([review, kinds, x["size"]], 1)).numpy()
        self.same(model(x), expected)
        self.same(predicted(model, x), expected)
        model.compile("adam", "mse")
        batches = tf.data.Dataset.from_tensor_slices((x, LABELS[:, None])).batch(8)
        self.same(predicted(model, batches), expected)
        losses = model.fit(batches, epochs=20, verbose=0).history["loss"]
        self.assertLess(losses[-1], losses[0])
        self.assertLess(model.fit(x, LABELS[:, None], verbose=0).history["loss"][0], losses[0])

    def test_a_call_of_ones_own_in_a_file(self):
        model = Plain()
        model.vectorize.adapt(REVIEWS)
        expected = predicted(model, REVIEWS)
        path = self.folder / "plain.keras"
        model.save(path)
        self.same(predicted(keras.models.load_model(path), REVIEWS), expected)

    def test_errors_name_the_input_the_layer_and_what_to_do(self):
        title, size = keras.Input((1,), dtype="string", name="title"), keras.Input((3,), name="size")
        vectorize = vectorized(name="rows")
        with self.assertRaisesRegex(TypeError, 'layer "dense.*" .Dense. takes numbers, and the input "title" is one of texts: put a TextVectorization'):
            layers.Dense(1)(title)
        with self.assertRaisesRegex(TypeError, 'layer "rows" .TextVectorization. takes texts, and was given the value "size" of float32'):
            vectorize(size)
        model = mixed()
        with self.assertRaisesRegex(TypeError, 'input "title" of model ".*" takes texts, and was given numbers'):
            model.predict({**MIXED, "title": MIXED["size"]}, verbose=0)
        with self.assertRaisesRegex(TypeError, 'input "size" of model ".*" takes numbers, and was given texts'):
            model.predict({**MIXED, "size": MIXED["title"]}, verbose=0)
        with self.assertRaisesRegex(ValueError, 'an input "kind", which the data has not'):
            model.predict({name: MIXED[name] for name in ("title", "size")}, verbose=0)
        unlearned = layers.TextVectorization(name="unlearned")
        late = keras.Model(title, layers.Embedding(5, 2)(unlearned(title)))
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, 'layer "unlearned" .* has no vocabulary yet.*unlearned.adapt'):
            late.predict(np.array(["a"]), verbose=0)
        unlearned.adapt(["a b"])
        self.assertEqual(predicted(late, np.array(["a b a", "b"])).shape, (2, 3, 2))
        with self.assertRaisesRegex(TypeError, "results of models are numbers"):
            keras.Model(title, title).predict(np.array(["a"]), verbose=0)

        class Lengths(keras.Model):
            def __init__(self):
                super().__init__()
                self.lookup = layers.StringLookup(vocabulary=["a"])

            def call(self, texts):
                return self.lookup(texts) + tf.cast(tf.strings.length(texts), tf.int64)
        with self.assertRaisesRegex(TypeError, "not known in its call.*layers of texts take them"):
            Lengths()(tf.constant(["a"]))

    def test_checkpoints_are_of_the_whole_model(self):
        for cls in (keras.Model, OwnSteps):
            for name, settings in (("{epoch}.keras", {}), ("{epoch}-{batch}.keras", {"save_freq": 2}), ("{epoch}.safetensors", {}),
                                   ("{epoch:02d}-{loss:.2f}.keras", {"monitor": "loss", "save_best_only": True})):
                with self.subTest(cls.__name__, name=name):
                    model, folder = reviewer(vectorized(output_sequence_length=5), cls=cls), pathlib.Path(tempfile.mkdtemp(dir=self.folder))
                    saving = keras.callbacks.ModelCheckpoint(folder / name, **settings)
                    model.fit(np.array(REVIEWS), LABELS, batch_size=8, epochs=2, verbose=0, callbacks=[saving])
                    files = sorted(folder.iterdir())
                    if "batch" in name:
                        self.assertEqual([path.name for path in files], [f"{epoch}-{batch}.keras" for epoch in (1, 2) for batch in (2, 4, 6)])
                    if name.endswith(".safetensors"):
                        self.assertEqual([path.name for path in files], ["1.json", "1.safetensors", "2.json", "2.safetensors"])
                        read = keras.models.model_from_json(files[2].read_text())
                        read.load_weights(files[3])
                    else:
                        read = keras.models.load_model(files[-1])
                    self.same(read(REVIEWS), model(REVIEWS))
                    self.assertEqual(read.inputs[0].dtype, tf.string)

    def test_weights_callbacks_and_parts(self):
        model = reviewer(vectorized(output_sequence_length=5))
        heard = []

        class Hears(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                heard.append((self.model is model, self.model.predict(np.array(["great"]), verbose=0).shape))
        path = str(self.folder / "weights.safetensors")
        model.fit(np.array(REVIEWS), LABELS, verbose=0, callbacks=[Hears(), keras.callbacks.ModelCheckpoint(path)])
        self.assertEqual(heard, [(True, (1, 1))])
        weights, expected = model.get_weights(), predicted(model, REVIEWS)
        model.set_weights([0 * weight for weight in weights])
        model.load_weights(path)
        self.same(predicted(model, REVIEWS), expected)
        features = keras.Model(model.input, model.layers[2].output)
        self.same(predicted(features, REVIEWS), model.layers[2](model.layers[1](REVIEWS)))
        model.layers[2].trainable = False
        model.compile("sgd", "binary_crossentropy")
        model.fit(np.array(REVIEWS), LABELS, verbose=0)
        self.assertEqual([np.array_equal(one, other) for one, other in zip(weights, model.get_weights())], [True, False, False])


class TextModelsOwnProcess(unittest.TestCase):
    """The devices of a process are chosen once."""

    def test_all_devices_compute_the_same_bits(self):
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration(threads=1)] * 4)
        vectorize = vectorized(output_sequence_length=5)
        expected = reviewer(vectorize).fit(np.array(REVIEWS), LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        strategy = tf.distribute.MirroredStrategy()
        self.assertEqual(strategy.num_replicas_in_sync, 4)
        batches = tf.data.Dataset.from_tensor_slices((REVIEWS, LABELS)).batch(8)
        with strategy.scope():
            of_arrays, of_batches, chain, stepping = reviewer(vectorize), reviewer(vectorize), Plain(), reviewer(vectorize, cls=OwnSteps)
            chain.compile("sgd", "mse")
        with tempfile.TemporaryDirectory() as folder:
            saving = keras.callbacks.ModelCheckpoint(folder + "/model.keras")
            self.assertEqual(of_arrays.fit(np.array(REVIEWS), LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[saving]).history, expected)
            np.testing.assert_array_equal(keras.models.load_model(saving.filepath)(REVIEWS), of_arrays(REVIEWS))
        stepped = stepping.fit(batches, epochs=2, verbose=0, validation_data=(np.array(REVIEWS), LABELS)).history
        for name, values in expected.items():
            np.testing.assert_allclose(stepped[name], values, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(stepping.evaluate(batches, verbose=0)[0], stepped["val_loss"][-1], rtol=1e-5)
        np.testing.assert_allclose(stepping.predict(REVIEWS, verbose=0), 2.0 * stepping(tf.constant(REVIEWS)), rtol=1e-5)
        self.assertEqual(of_batches.fit(batches, epochs=2, verbose=0).history, expected)
        chain.vectorize.adapt(REVIEWS)
        self.assertEqual(len(chain.fit(batches, epochs=2, verbose=0).history["loss"]), 2)


class ModelsInFiles(unittest.TestCase):
    def test_models_inside_of_a_model_of_a_file_are_models(self):
        x = keras.Input((3,))
        chain = keras.Sequential([keras.Input((3,)), layers.Dense(2)], name="chain")
        inner = keras.Input((2,))
        model = keras.Model(x, keras.Model(inner, layers.Dense(1)(inner), name="inner")(chain(x)))
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder + "/model.keras")
            read = keras.models.load_model(folder + "/model.keras")
        self.assertIsInstance(read.get_layer("chain"), keras.Sequential)
        self.assertEqual([len(read.get_layer(name).layers) for name in ("chain", "inner")], [1, 2])
        self.assertEqual(read.get_layer("inner").input_shape, (None, 2))

    def test_layers_behind_the_list_of_layers_are_named_by_it(self):
        model = Plain(name="plain")
        model.vectorize.adapt(REVIEWS)
        model.predict(REVIEWS, verbose=0)
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder + "/plain.keras")
            with zipfile.ZipFile(folder + "/plain.keras") as archive:
                self.assertIn("assets/layers/text_vectorization/vocabulary.txt", archive.namelist())


if __name__ == "__main__":
    unittest.main()
