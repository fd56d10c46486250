# Callbacks: early stopping, a plateau, one of one's own that looks into the model.
import numpy as np
import tensorflow as tf
from tensorflow import keras


class LossAndErrorPrintingCallback(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch % 4 == 0:
            print("Up to batch {}, the average loss is {:7.2f}.".format(batch, logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        print("The average loss for epoch {} is {:7.2f} and mean absolute error is {:7.2f}.".format(
            epoch, logs["loss"], logs["mean_absolute_error"]))


class EarlyStoppingAtMinLoss(keras.callbacks.Callback):
    def __init__(self, patience=0):
        super().__init__()
        self.patience = patience
        self.best_weights = None

    def on_train_begin(self, logs=None):
        self.wait, self.stopped_epoch, self.best = 0, 0, np.inf

    def on_epoch_end(self, epoch, logs=None):
        current = logs.get("loss")
        if np.less(current, self.best):
            self.best, self.wait = current, 0
            self.best_weights = self.model.get_weights()
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch = epoch
                self.model.stop_training = True
                self.model.set_weights(self.best_weights)


x, y = np.random.rand(128, 4).astype("float32"), np.random.rand(128, 1).astype("float32")
model = keras.Sequential([keras.layers.Dense(1, input_shape=(4,))])
model.compile(optimizer=keras.optimizers.SGD(learning_rate=2.0), loss="mean_squared_error", metrics=["mean_absolute_error"])
own = EarlyStoppingAtMinLoss()
history = model.fit(x, y, batch_size=16, epochs=30, verbose=0, callbacks=[LossAndErrorPrintingCallback(), own])
assert own.stopped_epoch > 0 and len(history.epoch) < 30
model.compile(optimizer="adam", loss="mse")
history = model.fit(x, y, epochs=5, validation_split=0.2, verbose=0, callbacks=[
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1)])
assert "learning_rate" in history.history
