# Reviews as word numbers: embedding, masking, a bidirectional LSTM.
import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.default_rng(1)
good, bad = np.arange(10, 30), np.arange(30, 50)
reviews, labels = [], []
for i in range(256):
    label = i % 2
    words = rng.choice(good if label else bad, size=rng.integers(4, 12))
    reviews.append(words.tolist())
    labels.append(label)
x = keras.utils.pad_sequences(reviews, maxlen=12, padding='post')
y = np.array(labels, 'float32')

model = keras.Sequential([
    keras.layers.Embedding(50, 8, mask_zero=True),
    keras.layers.Bidirectional(keras.layers.LSTM(8)),
    keras.layers.Dense(8, activation='relu'),
    keras.layers.Dense(1)
])
model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True), optimizer=keras.optimizers.Adam(1e-2),
              metrics=[keras.metrics.BinaryAccuracy(threshold=0.0, name='accuracy')])
history = model.fit(x, y, epochs=6, batch_size=32, verbose=0)
print('accuracy', history.history['accuracy'][-1])
assert history.history['accuracy'][-1] > 0.9
