# Reviews as raw texts: a model that was trained on numbers becomes one of texts, another is trained on texts at once.
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(3)
rng = np.random.default_rng(3)
good, bad = ["great", "loved", "brilliant", "warm", "funny"], ["awful", "boring", "hated", "cold", "dull"]
plain = ["the", "film", "was", "and", "it", "a", "story"]
reviews, labels = [], []
for i in range(320):
    words = rng.choice(good if i % 2 else bad, 3).tolist() + rng.choice(plain, 5).tolist()
    rng.shuffle(words)
    reviews.append(" ".join(words).capitalize() + "!<br />")
    labels.append(float(i % 2))
raw_train_ds = tf.data.Dataset.from_tensor_slices((reviews[:256], labels[:256])).batch(32)
raw_test_ds = tf.data.Dataset.from_tensor_slices((reviews[256:], labels[256:])).batch(32)


def custom_standardization(input_data):
    lowercase = tf.strings.lower(input_data)
    return tf.strings.regex_replace(tf.strings.regex_replace(lowercase, '<br />', ' '), '[!.]', '')


vectorize_layer = layers.TextVectorization(standardize=custom_standardization, max_tokens=100, output_mode='int', output_sequence_length=10)
vectorize_layer.adapt(raw_train_ds.map(lambda text, label: text))

# Trained on numbers, exported with the layer in front.
train_ds = raw_train_ds.map(lambda text, label: (vectorize_layer(tf.expand_dims(text, -1)), label)).cache().prefetch(tf.data.AUTOTUNE)
model = keras.Sequential([layers.Embedding(100, 8), layers.Dropout(0.2), layers.GlobalAveragePooling1D(), layers.Dense(1)])
model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True), optimizer=keras.optimizers.Adam(0.05),
              metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)])
model.fit(train_ds, epochs=5, verbose=0)
export_model = keras.Sequential([vectorize_layer, model, layers.Activation('sigmoid')])
export_model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=False), optimizer='adam', metrics=['accuracy'])
loss, accuracy = export_model.evaluate(raw_test_ds, verbose=0)
print('accuracy of the exported model', accuracy)
assert accuracy > 0.95
scores = export_model.predict(tf.constant(['The film was great!', 'A boring story. Awful!']), verbose=0)
print('scores', scores.reshape(-1))
assert scores[0, 0] > 0.5 > scores[1, 0]

# Trained on texts, on all devices.
vectorizer = layers.TextVectorization(max_tokens=100, output_sequence_length=12)
vectorizer.adapt(reviews)
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    text = keras.Input(shape=(1,), dtype='string', name='review')
    stars = keras.Input(shape=(1,), name='stars')
    x = layers.Embedding(100, 8, mask_zero=True)(vectorizer(text))
    x = layers.Bidirectional(layers.LSTM(4))(x)
    outputs = layers.Dense(1, activation='sigmoid')(layers.Concatenate()([x, stars]))
    functional = keras.Model([text, stars], outputs)
    functional.compile(keras.optimizers.Adam(0.01), 'binary_crossentropy', metrics=['accuracy'])
functional.summary()
x = {'review': np.array(reviews), 'stars': rng.normal(size=(320, 1)).astype('float32')}
y = np.array(labels, 'float32')
history = functional.fit(x, y, batch_size=32, epochs=8, validation_split=0.2, verbose=0)
print('validation accuracy', history.history['val_accuracy'][-1])
assert history.history['val_accuracy'][-1] > 0.9

with tempfile.TemporaryDirectory() as folder:
    functional.save(folder + '/reviews.keras')
    again = keras.models.load_model(folder + '/reviews.keras')
assert np.array_equal(again.predict(x, verbose=0), functional.predict(x, verbose=0))


class Reviewer(keras.Model):
    def __init__(self, vectorize, **kwargs):
        super().__init__(**kwargs)
        self.vectorize = vectorize
        self.embed = layers.Embedding(100, 8)
        self.pool = layers.GlobalAveragePooling1D()
        self.score = layers.Dense(1, activation='sigmoid')

    def call(self, texts):
        return self.score(self.pool(self.embed(self.vectorize(texts))))


reviewer = Reviewer(vectorizer)
reviewer.compile(keras.optimizers.Adam(0.05), 'binary_crossentropy', metrics=['accuracy'])
reviewer.fit(raw_train_ds, epochs=5, verbose=0)
results = reviewer.evaluate(raw_test_ds, return_dict=True, verbose=0)
print('a model with a call() of its own', results)
assert results['accuracy'] > 0.95
