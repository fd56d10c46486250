"""The networks of suite.py that CPUs are measured at, in Keras on TensorFlow."""

import suite
from suite import BETA1, BETA2, EPSILON, LEARNING_RATE, NETWORKS

import tensorflow as tf

keras = tf.keras
layers = keras.layers
WAYS = ["function", "xla"]


def mlp(net, x):
    return layers.Dense(net.classes)(layers.Dense(net.hidden, activation="relu")(x))


def lenet(net, x):
    x = layers.MaxPooling2D()(layers.Conv2D(6, 5, padding="same", activation="relu")(x))
    x = layers.Flatten()(layers.MaxPooling2D()(layers.Conv2D(16, 5, activation="relu")(x)))
    for units in (120, 84):
        x = layers.Dense(units, activation="relu")(x)
    return layers.Dense(net.classes)(x)


def resnet(net, x):
    def normalized(x, filters, size, stride=1):
        if size > 1:
            x = layers.ZeroPadding2D(size // 2)(x)
        x = layers.Conv2D(filters, size, stride, use_bias=False)(x)
        return layers.BatchNormalization(epsilon=1e-5)(x)

    x = layers.ReLU()(normalized(x, net.width, 3))
    filters = net.width
    for stage, blocks in enumerate(net.blocks):
        for i in range(blocks):
            stride = 2 if i == 0 and stage > 0 else 1
            y = normalized(layers.ReLU()(normalized(x, filters, 3, stride)), filters, 3)
            if stride > 1:
                x = normalized(x, filters, 1, stride)
            x = layers.ReLU()(layers.Add()([x, y]))
        filters *= 2
    return layers.Dense(net.classes)(layers.GlobalAveragePooling2D()(x))


def published(net, x):
    application = getattr(keras.applications, net.keras)
    return application(weights=None, input_tensor=x, classes=net.classes, classifier_activation=None).output


class Positions(layers.Layer):
    def build(self, shape):
        self.embedding = self.add_weight(name="positions", shape=shape[1:], initializer="random_normal")

    def call(self, x):
        return x + self.embedding


def block(x, width, heads, hidden, causal):
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=causal)])
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    return layers.Add()([x, layers.Dense(width)(layers.Dense(hidden, activation="gelu")(y))])


def vit(net, x):
    x = layers.Conv2D(net.width, net.patch, net.patch)(x)
    x = Positions()(layers.Reshape((-1, net.width))(x))
    for _ in range(net.depth):
        x = block(x, net.width, net.heads, net.hidden, False)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return layers.Dense(net.classes)(x)


def gpt(net, x):
    x = Positions()(layers.Embedding(net.vocabulary, net.width)(x))
    for _ in range(net.depth):
        x = block(x, net.width, net.heads, 4 * net.width, True)
    return layers.Dense(net.vocabulary, use_bias=False)(layers.LayerNormalization(epsilon=1e-6)(x))


def lstm(net, x):
    return layers.Dense(net.classes)(layers.LSTM(net.units)(layers.Embedding(net.vocabulary, net.width)(x)))


def gru(net, x):
    return layers.Dense(net.classes)(layers.GRU(net.units)(layers.Embedding(net.vocabulary, net.width)(x)))


def unet(net, x):
    def pair(x, filters):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    across = []
    for i in range(net.depth + 1):
        x = pair(x if i == 0 else layers.MaxPooling2D()(x), net.width << i)
        across.append(x)
    for i in reversed(range(net.depth)):
        x = layers.Conv2DTranspose(net.width << i, 2, 2)(x)
        x = pair(layers.Concatenate()([x, across[i]]), net.width << i)
    return layers.Conv2D(net.classes, 1)(x)


def conv3d(net, x):
    for i, filters in enumerate(net.filters):
        x = layers.Conv3D(filters, 3, padding="same", activation="relu")(x if i == 0 else layers.MaxPooling3D()(x))
    return layers.Dense(net.classes)(layers.GlobalAveragePooling3D()(x))


def embedding_bag(net, x):
    x = layers.GlobalAveragePooling1D()(layers.Embedding(net.vocabulary, net.width)(x))
    return layers.Dense(net.classes)(x)


class KerasSuite:
    version = tf.__version__

    def builders(self, way, work, batch):
        task, name, _ = suite.parsed(work)
        return [lambda: self.build(way, task, name, batch)]

    def build(self, way, task, name, batch):
        net = NETWORKS[name]
        x, y = (tf.constant(a) for a in suite.data(name, batch))
        inputs = layers.Input(net.input, dtype=x.dtype)
        model = keras.Model(inputs, globals()[suite.kind(name)](net, inputs))

        if task == "predict":
            @tf.function(jit_compile=way == "xla")
            def step():
                return model(x, training=False)
        else:
            loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            if net.optimizer == "sgd":
                optimizer = keras.optimizers.SGD(0.1, 0.9)
            elif net.optimizer == "adamw":
                optimizer = keras.optimizers.AdamW(3e-4, 0.1, BETA1, BETA2, EPSILON)
            else:
                optimizer = keras.optimizers.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)
            optimizer.build(model.trainable_variables)

            @tf.function(jit_compile=way == "xla")
            def step():
                with tf.GradientTape() as tape:
                    loss = loss_of(y, model(x, training=True))
                variables = model.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
                return loss

        def run(iterations):
            for _ in range(iterations):
                result = step()
            result.numpy()

        return run
