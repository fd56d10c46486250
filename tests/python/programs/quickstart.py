# A classifier of digits, from loading to probabilities.
import tensorflow as tf

(x_train, y_train), (x_test, y_test) = tf.keras.datasets.digits(train_size=2000, test_size=400)
x_train, x_test = x_train / 255.0, x_test / 255.0

model = tf.keras.models.Sequential([
    tf.keras.layers.Input(shape=(28, 28)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(64, activation='relu'),
    tf.keras.layers.Dropout(0.2),
    tf.keras.layers.Dense(10)
])
predictions = model(x_train[:1].astype('float32')).numpy()
tf.nn.softmax(predictions).numpy()
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
loss_fn(y_train[:1], predictions).numpy()

model.compile(optimizer='adam', loss=loss_fn, metrics=['accuracy'])
model.fit(x_train, y_train, epochs=3, verbose=2)
loss, accuracy = model.evaluate(x_test, y_test, verbose=2)

probability_model = tf.keras.Sequential([model, tf.keras.layers.Softmax()])
p = probability_model(x_test[:5].astype('float32'))
assert abs(float(tf.reduce_sum(p)) - 5) < 1e-3, p
assert accuracy > 0.6, accuracy
print('accuracy', accuracy)
