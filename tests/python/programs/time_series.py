# The next value of a series, from windows of a dataset.
import numpy as np
import tensorflow as tf

series = np.sin(np.arange(400) * 0.1).astype("float32")
WINDOW = 10
dataset = tf.data.Dataset.from_tensor_slices(series)
dataset = dataset.window(WINDOW + 1, shift=1, drop_remainder=True)
dataset = dataset.flat_map(lambda w: w.batch(WINDOW + 1))
dataset = dataset.map(lambda w: (tf.expand_dims(w[:-1], -1), w[-1]))
dataset = dataset.shuffle(400).batch(32).prefetch(1)

model = tf.keras.Sequential([
    tf.keras.layers.LSTM(8, input_shape=(WINDOW, 1)),
    tf.keras.layers.Dense(1)
])
model.compile(loss=tf.keras.losses.Huber(), optimizer=tf.keras.optimizers.Adam(0.01), metrics=["mae"])
history = model.fit(dataset, epochs=8, verbose=0)
print(history.history["mae"][-1])
assert history.history["mae"][-1] < 0.25
