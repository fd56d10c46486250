# A base that was trained is frozen, a new head is trained on it, then all of it is fine-tuned.
import numpy as np
import tensorflow as tf
from tensorflow import keras

(x, y), _ = keras.datasets.digits(train_size=1000, test_size=0)
x = x.reshape(-1, 784).astype('float32') / 255
base = keras.Sequential([keras.layers.Dense(32, activation='relu', input_shape=(784,)), keras.layers.Dense(16, activation='relu')])
whole = keras.Sequential([base, keras.layers.Dense(10)])
whole.compile('adam', keras.losses.SparseCategoricalCrossentropy(from_logits=True))
whole.fit(x, y, epochs=3, verbose=0)

base.trainable = False
inputs = keras.Input(shape=(784,))
outputs = keras.layers.Dense(1)(base(inputs, training=False))
model = keras.Model(inputs, outputs)
assert len(model.trainable_weights) == 2 and len(model.non_trainable_weights) == 4
even = (y % 2 == 0).astype('float32')
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=keras.losses.BinaryCrossentropy(from_logits=True),
              metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)])
before = base.get_weights()[0]
model.fit(x, even, epochs=4, verbose=0)
np.testing.assert_array_equal(before, base.get_weights()[0])
base.trainable = True
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=keras.losses.BinaryCrossentropy(from_logits=True),
              metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)])
history = model.fit(x, even, epochs=3, verbose=0)
assert not np.array_equal(before, base.get_weights()[0])
print(history.history)
