# Linear regression with a layer that learns how to normalise.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

rng = np.random.default_rng(0)
features = rng.normal(3.0, 2.0, size=(400, 3)).astype('float32')
labels = features @ np.array([1.0, -2.0, 0.5], 'float32') + 4
normalizer = layers.Normalization(axis=-1)
normalizer.adapt(features)

model = tf.keras.Sequential([normalizer, layers.Dense(units=1)])
model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=0.1), loss='mean_absolute_error')
history = model.fit(features, labels, epochs=40, verbose=0, validation_split=0.2)
assert history.history['val_loss'][-1] < 0.5, history.history['val_loss'][-1]
prediction = model.predict(features[:3], verbose=0).flatten()
np.testing.assert_allclose(prediction, labels[:3], atol=1.0)
print('error', history.history['val_loss'][-1])
