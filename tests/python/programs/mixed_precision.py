# Computation in 16 bits, weights in 32.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import mixed_precision

mixed_precision.set_global_policy('mixed_bfloat16')
print('Compute dtype: %s' % mixed_precision.global_policy().compute_dtype)
inputs = keras.Input(shape=(16,), name='digits')
dense1 = keras.layers.Dense(32, activation='relu', name='dense_1')
x = dense1(inputs)
assert x.dtype == 'bfloat16' and dense1.kernel.dtype == 'float32', (x.dtype, dense1.kernel.dtype)
outputs = keras.layers.Dense(2, name='dense_logits')(x)
outputs = keras.layers.Activation('softmax', dtype='float32', name='predictions')(outputs)
model = keras.Model(inputs=inputs, outputs=outputs)
model.compile(loss='sparse_categorical_crossentropy', optimizer=keras.optimizers.RMSprop(0.01), metrics=['accuracy'])
y = np.random.randint(0, 2, 256)
x = np.random.normal(size=(256, 16)).astype('float32') + y[:, None]
history = model.fit(x, y, batch_size=32, epochs=8, verbose=0)
assert history.history['accuracy'][-1] > 0.8
mixed_precision.set_global_policy('float32')
