# Two inputs, two outputs, losses and weights by name, data as dictionaries in a dataset.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

title_input = keras.Input(shape=(None,), name="title", dtype="int32")
tags_input = keras.Input(shape=(4,), name="tags")
title = layers.Embedding(50, 8)(title_input)
title = layers.LSTM(8)(title)
x = layers.concatenate([title, tags_input])
priority = layers.Dense(1, name="priority")(x)
department = layers.Dense(3, name="department")(x)
model = keras.Model(inputs=[title_input, tags_input], outputs={"priority": priority, "department": department})
model.compile(optimizer=keras.optimizers.RMSprop(1e-3),
              loss={"priority": keras.losses.BinaryCrossentropy(from_logits=True),
                    "department": keras.losses.CategoricalCrossentropy(from_logits=True)},
              loss_weights={"priority": 1.0, "department": 0.2})
title_data = np.random.randint(50, size=(64, 6)).astype("int32")
tags_data = np.random.randint(2, size=(64, 4)).astype("float32")
priority_targets = np.random.random(size=(64, 1)).astype("float32")
dept_targets = np.random.randint(2, size=(64, 3)).astype("float32")
model.fit({"title": title_data, "tags": tags_data}, {"priority": priority_targets, "department": dept_targets}, epochs=2,
          batch_size=32, verbose=0)
dataset = tf.data.Dataset.from_tensor_slices(({"title": title_data, "tags": tags_data},
                                              {"priority": priority_targets, "department": dept_targets})).batch(16)
history = model.fit(dataset, epochs=1, verbose=0)
assert "department_loss" in history.history or "loss" in history.history
result = model.predict({"title": title_data, "tags": tags_data}, verbose=0)
assert result["department"].shape == (64, 3)
