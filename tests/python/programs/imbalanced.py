# Classes of different sizes: an initial bias, class weights, metrics of right and wrong.
import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.default_rng(2)
labels = (rng.random(1000) < 0.1).astype('float32')
features = (rng.normal(size=(1000, 5)) + 1.5 * labels[:, None]).astype('float32')
METRICS = [keras.metrics.TruePositives(name='tp'), keras.metrics.FalsePositives(name='fp'),
           keras.metrics.BinaryAccuracy(name='accuracy'), keras.metrics.Precision(name='precision'),
           keras.metrics.Recall(name='recall'), keras.metrics.AUC(name='auc'), keras.metrics.AUC(name='prc', curve='PR')]
output_bias = tf.keras.initializers.Constant(np.log(labels.sum() / (1000 - labels.sum())))
model = keras.Sequential([
    keras.layers.Dense(16, activation='relu', input_shape=(features.shape[-1],)),
    keras.layers.Dropout(0.2),
    keras.layers.Dense(1, activation='sigmoid', bias_initializer=output_bias)])
model.compile(optimizer=keras.optimizers.Adam(learning_rate=1e-2), loss=keras.losses.BinaryCrossentropy(), metrics=METRICS)
weight_for_0, weight_for_1 = 1000 / 2 / (1000 - labels.sum()), 1000 / 2 / labels.sum()
history = model.fit(features, labels, batch_size=100, epochs=10, verbose=0,
                    class_weight={0: weight_for_0, 1: weight_for_1},
                    callbacks=[keras.callbacks.EarlyStopping(monitor='prc', mode='max', patience=5, restore_best_weights=True)])
results = dict(zip(model.metrics_names, model.evaluate(features, labels, verbose=0)))
print(results, history.history['recall'][-1])
assert history.history['recall'][-1] > 0.6
