// Losses: by name (.loss = "mse"), made by a function of namespace losses, or any function of labels and
// predictions: .loss = [](const Tensor& y_true, const Tensor& y_pred) { return ...; }.
//
// A loss gives the mean (or sum) over the whole batch. Inside a replica it gives the replica's share of
// that, so that the sum over the replicas is the mean over the global batch exactly, however unevenly the
// batch fell on them. 16-bit predictions are taken in float32.
//
// A Loss is a handle to what never changes: any thread may use it.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/graph/tensor_arg.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

enum class Reduction {
  sum_over_batch_size,      // divided by the number of losses in the global batch
  mean,                     // the same
  mean_with_sample_weight,  // divided by the sum of the weights
  sum,
  none,  // one loss per example
};

using LossFunction = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;

class Loss {
 public:
  class Rule;
  Loss() = default;  // undefined
  // NOLINTBEGIN(google-explicit-constructor)
  // "crossentropy" is binary, sparse or categorical by the shapes of labels and predictions.
  Loss(const char* name, std::source_location where = std::source_location::current());
  Loss(const std::string& name, std::source_location where = std::source_location::current());
  Loss(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
  // A function's losses, one per example; losses::from_function() can say more. y_true has y_pred's rank and
  // dtype.
  template <class F>
  requires std::is_invocable_r_v<Tensor, F&, const Tensor&, const Tensor&> Loss(F f)
      : Loss(of_function(std::move(f))) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return rule_ != nullptr; }
  // Weights are one per example or one per loss, or broadcast to the losses. Masked positions do not
  // count: those of the mask that y_pred carries.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {},
                    std::source_location where = std::source_location::current()) const;

  std::string name() const;
  Json serialize() const;
  static Loss deserialize(const Json& json, std::source_location where = std::source_location::current());
  const Rule& rule() const { return *rule_; }

 private:
  static Loss of_function(LossFunction f);

  std::shared_ptr<const Rule> rule_;
};

// What a loss is: derive from it to write one.
class Loss::Rule {
 public:
  Rule(std::string name, Reduction reduction) : name_(std::move(name)), reduction_(reduction) {}
  virtual ~Rule() = default;
  // One loss for each example (or for each position of a sequence, image, ...): y_pred's shape without its
  // last dimension, mostly. A scalar is taken for a mean over this replica's examples.
  virtual Tensor losses(const Tensor& y_true, const Tensor& y_pred) const = 0;
  // False: y_true has been brought to y_pred's rank and dtype. True: it comes as it is.
  virtual bool takes_class_numbers() const { return false; }
  // False: for predictions of this shape losses() gives losses of the whole batch, the same on every replica.
  virtual bool per_example(const Shape& predictions) const;
  virtual std::string class_name() const = 0;
  virtual Json config() const;  // name and reduction; add your own

  const std::string& name() const { return name_; }
  Reduction reduction() const { return reduction_; }

 private:
  std::string name_;
  Reduction reduction_;
};

// Keras' losses, with its defaults. An empty name stands for the loss's own: "mean_squared_error", ...
namespace losses {

struct LossOptions {
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
Loss MeanSquaredError(const LossOptions& options = {});
Loss MeanAbsoluteError(const LossOptions& options = {});
Loss MeanAbsolutePercentageError(const LossOptions& options = {});
Loss MeanSquaredLogarithmicError(const LossOptions& options = {});
Loss LogCosh(const LossOptions& options = {});
Loss KLDivergence(const LossOptions& options = {});
Loss Poisson(const LossOptions& options = {});
// Labels are -1 and 1; where all are 0 and 1, 0 is taken for -1.
Loss Hinge(const LossOptions& options = {});
Loss SquaredHinge(const LossOptions& options = {});
Loss CategoricalHinge(const LossOptions& options = {});

struct HuberOptions {
  double delta = 1;  // where the parabola becomes a line
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
Loss Huber(const HuberOptions& options = {}, std::source_location where = std::source_location::current());

struct CosineSimilarityOptions {
  int axis = -1;
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
// -1 where they point the same way.
Loss CosineSimilarity(const CosineSimilarityOptions& options = {},
                      std::source_location where = std::source_location::current());

struct CrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  int axis = -1;
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
Loss BinaryCrossentropy(const CrossentropyOptions& options = {},
                        std::source_location where = std::source_location::current());
Loss CategoricalCrossentropy(const CrossentropyOptions& options = {},
                             std::source_location where = std::source_location::current());

struct BinaryFocalCrossentropyOptions {
  bool apply_class_balancing = false;
  double alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  int axis = -1;
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
Loss BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& options = {},
                             std::source_location where = std::source_location::current());

// One number for all classes, or one for each: .alpha = 0.25, .alpha = {0.1, 0.6, 0.3}.
class ClassWeights {
 public:
  ClassWeights() = default;  // 1
  // NOLINTBEGIN(google-explicit-constructor)
  ClassWeights(double one) : values_{one} {}
  ClassWeights(std::initializer_list<double> each) : values_(each), single_(false) {}
  ClassWeights(std::vector<double> each) : values_(std::move(each)), single_(false) {}
  // NOLINTEND(google-explicit-constructor)
  bool single() const { return single_; }
  const std::vector<double>& values() const { return values_; }

  Json serialize() const;  // a number or a list
  static ClassWeights deserialize(const Json& json,
                                  std::source_location where = std::source_location::current());

 private:
  std::vector<double> values_ = {1};
  bool single_ = true;
};

struct CategoricalFocalCrossentropyOptions {
  ClassWeights alpha = 0.25;
  double gamma = 2;
  bool from_logits = false;
  double label_smoothing = 0;
  int axis = -1;
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
Loss CategoricalFocalCrossentropy(const CategoricalFocalCrossentropyOptions& options = {},
                                  std::source_location where = std::source_location::current());

struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;
  std::optional<int64_t> ignore_class = {};  // positions with this label do not count
  Reduction reduction = Reduction::sum_over_batch_size;
  int axis = -1;
  std::string name = {};
};
// Labels are class numbers of any integer dtype (or whole numbers), with or without a last dimension of 1.
Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {},
                                   std::source_location where = std::source_location::current());

struct CategoricalGeneralizedCrossEntropyOptions {
  double q = 0.5;  // in (0, 1)
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
// Labels are class numbers.
Loss CategoricalGeneralizedCrossEntropy(const CategoricalGeneralizedCrossEntropyOptions& options = {},
                                        std::source_location where = std::source_location::current());

struct DiceOptions {
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
  std::vector<int64_t> axis = {};  // empty: one loss for the whole batch, of all replicas
};
Loss Dice(const DiceOptions& options = {}, std::source_location where = std::source_location::current());

struct TverskyOptions {
  double alpha = 0.5;
  double beta = 0.5;
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
  std::vector<int64_t> axis = {};
};
Loss Tversky(const TverskyOptions& options = {},
             std::source_location where = std::source_location::current());

struct CircleOptions {
  double gamma = 80;            // the largest scale of a similarity
  double margin = 0.4;          // how far a pair may be from its best distance
  bool remove_diagonal = true;  // an example is no pair with itself
  Reduction reduction = Reduction::sum_over_batch_size;
  std::string name = {};
};
// Circle loss. Takes class numbers and embeddings (examples, size) of length 1 (UnitNormalization), and pulls
// the pairs of the batch that are of one class together and those of two classes apart. Examples without such
// pairs do not count. Inside a replica the pairs are those of its own examples.
Loss Circle(const CircleOptions& options = {}, std::source_location where = std::source_location::current());

// Connectionist temporal classification: labels are class numbers (examples, length), padded with 0, which is
// the blank and no class; predictions are logits (examples, time, classes).
Loss CTC(const LossOptions& options = {});

struct FunctionLossOptions {
  std::string name = "function";
  Reduction reduction = Reduction::sum_over_batch_size;
};
Loss from_function(LossFunction f, const FunctionLossOptions& options = {});

// One loss per example.
Tensor mean_squared_error(const TensorArg& y_true, const TensorArg& y_pred);
Tensor mean_absolute_error(const TensorArg& y_true, const TensorArg& y_pred);
Tensor mean_absolute_percentage_error(const TensorArg& y_true, const TensorArg& y_pred);
Tensor mean_squared_logarithmic_error(const TensorArg& y_true, const TensorArg& y_pred);
Tensor huber(const TensorArg& y_true, const TensorArg& y_pred, double delta = 1);
Tensor log_cosh(const TensorArg& y_true, const TensorArg& y_pred);
Tensor kl_divergence(const TensorArg& y_true, const TensorArg& y_pred);
Tensor poisson(const TensorArg& y_true, const TensorArg& y_pred);
Tensor binary_crossentropy(const TensorArg& y_true, const TensorArg& y_pred,
                           CrossentropyOptions options = {});
Tensor categorical_crossentropy(const TensorArg& y_true, const TensorArg& y_pred,
                                CrossentropyOptions options = {});
Tensor sparse_categorical_crossentropy(const TensorArg& y_true, const TensorArg& y_pred,
                                       SparseCategoricalCrossentropyOptions options = {});

struct CTCOptions {
  Tensor label_length = {};  // (examples), whole numbers; undefined: up to the last that is not mask_index
  Tensor logit_length = {};  // (examples), whole numbers; undefined: all of time
  int64_t mask_index = 0;    // the blank
};
// -log of the probability that the logits (examples, time, classes), taken as a softmax at every step, spell
// the labels (examples, length) once repetitions are merged and blanks left out. A label that the time does
// not suffice for has a loss of about 1e5. Differentiable in the logits.
Tensor ctc(const TensorArg& labels, const TensorArg& logits, const CTCOptions& options = {});

// Makes one of your own readable from files: `make` gets what Rule::config() wrote.
void register_loss(const std::string& class_name, std::function<Loss(const Json& config)> make);

}  // namespace losses

}  // namespace lockstep::keras
