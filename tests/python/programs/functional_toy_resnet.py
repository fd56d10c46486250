# The functional API: branches, shared layers, residual connections.
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

inputs = keras.Input(shape=(16, 16, 3), name="img")
x = layers.Conv2D(8, 3, activation="relu")(inputs)
x = layers.Conv2D(16, 3, activation="relu")(x)
block_1_output = layers.MaxPooling2D(3)(x)
x = layers.Conv2D(16, 3, activation="relu", padding="same")(block_1_output)
x = layers.Conv2D(16, 3, activation="relu", padding="same")(x)
block_2_output = layers.add([x, block_1_output])
x = layers.GlobalAveragePooling2D()(block_2_output)
x = layers.Dense(16, activation="relu")(x)
x = layers.Dropout(0.5)(x)
outputs = layers.Dense(4)(x)
model = keras.Model(inputs, outputs, name="toy_resnet")
model.summary()
assert model.name == "toy_resnet"

encoder = keras.Model(inputs, block_1_output, name="encoder")
assert encoder(np.ones((2, 16, 16, 3), "float32")).shape == (2, 4, 4, 16)
model.compile(optimizer=keras.optimizers.RMSprop(1e-3), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              metrics=["acc"])
x_train = np.random.rand(64, 16, 16, 3).astype("float32")
y_train = np.random.randint(0, 4, 64)
history = model.fit(x_train, y_train, batch_size=16, epochs=1, validation_split=0.2, verbose=0)
assert "val_loss" in history.history
