# Layers: weights, layers in layers, losses that layers add, what training changes.
import tensorflow as tf
from tensorflow import keras


class Linear(keras.layers.Layer):
    def __init__(self, units=32):
        super().__init__()
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="random_normal", trainable=True)
        self.b = self.add_weight(shape=(self.units,), initializer="zeros", trainable=True)

    def call(self, inputs):
        return tf.matmul(inputs, self.w) + self.b


class MLPBlock(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.linear_1, self.linear_2, self.linear_3 = Linear(32), Linear(32), Linear(1)

    def call(self, inputs):
        x = tf.nn.relu(self.linear_1(inputs))
        x = tf.nn.relu(self.linear_2(x))
        return self.linear_3(x)


class ActivityRegularization(keras.layers.Layer):
    def __init__(self, rate=1e-2):
        super().__init__()
        self.rate = rate

    def call(self, inputs):
        self.add_loss(self.rate * tf.reduce_mean(inputs))
        return inputs


class Noise(keras.layers.Layer):
    def call(self, inputs, training=None):
        if training:
            return inputs + tf.random.normal(tf.shape(inputs), stddev=0.1)
        return inputs


mlp = MLPBlock()
y = mlp(tf.ones(shape=(3, 64)))
assert len(mlp.weights) == 6 and len(mlp.trainable_weights) == 6
regular = ActivityRegularization()
regular(tf.ones((2, 2)))
assert len(regular.losses) == 1
assert float(tf.reduce_max(tf.abs(Noise()(tf.ones((2, 2))) - 1))) == 0
assert float(tf.reduce_max(tf.abs(Noise()(tf.ones((2, 2)), training=True) - 1))) > 0
model = keras.Sequential([keras.Input((64,)), mlp, ActivityRegularization(), Noise()])
model.compile('adam', 'mse')
model.fit(tf.ones((32, 64)), tf.zeros((32, 1)), epochs=3, verbose=0)
print('ok', len(model.trainable_variables))
