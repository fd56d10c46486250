# A tensor program from nothing: a model of variables, a loss, a loop.
import tensorflow as tf


class MyModel(tf.Module):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.w = tf.Variable(5.0)
        self.b = tf.Variable(0.0)

    def __call__(self, x):
        return self.w * x + self.b


TRUE_W, TRUE_B, NUM_EXAMPLES = 3.0, 2.0, 201
x = tf.linspace(-2, 2, NUM_EXAMPLES)
x = tf.cast(x, tf.float32)
noise = tf.random.normal(shape=[NUM_EXAMPLES], stddev=0.1)
y = x * TRUE_W + TRUE_B + noise
model = MyModel()
assert len(model.variables) == 2


def loss(target_y, predicted_y):
    return tf.reduce_mean(tf.square(target_y - predicted_y))


def train(model, x, y, learning_rate):
    with tf.GradientTape() as t:
        current_loss = loss(y, model(x))
    dw, db = t.gradient(current_loss, [model.w, model.b])
    model.w.assign_sub(learning_rate * dw)
    model.b.assign_sub(learning_rate * db)


for epoch in range(40):
    train(model, x, y, learning_rate=0.1)
print(f"W = {model.w.numpy():1.2f}, b = {model.b.numpy():1.2f}")
assert abs(float(model.w) - TRUE_W) < 0.2 and abs(model.b.numpy() - TRUE_B) < 0.2
