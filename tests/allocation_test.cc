// A compiled step allocates nothing: every allocation of this program is counted and laid to the library
// that asked for it. oneDNN allocates inside each of its calls, which is not ours to change; its count is
// printed and must not grow.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>

#include "devices.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "models/models.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_OTHER_ALLOCATOR 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_OTHER_ALLOCATOR 1
#endif

namespace lockstep {
namespace {

enum Origin : int { own, onednn, openmp, other, kOrigins };

struct Counts {
  std::array<std::atomic<int64_t>, kOrigins> allocations{};
  // The return addresses of the first allocation of our own, for the failure's message.
  std::array<void*, 32> trace{};
  std::atomic<int> depth{0};
};

Counts counts;
std::atomic<bool> counting{false};
thread_local bool inside = false;

// The innermost frame that belongs to a library with a name: who asked for the memory. What the C++ library
// allocates is laid to whoever called it.
Origin origin_of(void* const* frames, int depth) {
  for (int i = 0; i < depth; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || !info.dli_fname) continue;
    const char* slash = std::strrchr(info.dli_fname, '/');
    const char* file = slash ? slash + 1 : info.dli_fname;
    if (std::strstr(file, "libdnnl")) return onednn;
    if (std::strstr(file, "libgomp") || std::strstr(file, "libomp")) return openmp;
    if (std::strstr(file, "liblockstep")) return own;
    // The test program itself: inlined parts of Lockstep's headers.
    if (!std::strstr(file, ".so")) return own;
  }
  return other;
}

// Never inlined: it looks for its caller's caller.
[[maybe_unused]] __attribute__((noinline)) void count_allocation() {
  if (!counting.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  std::array<void*, 32> frames{};
  const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
  // This function and the allocation function that called it.
  constexpr int kSkipped = 2;
  const Origin origin = origin_of(frames.data() + kSkipped, depth - kSkipped);
  if (counts.allocations[origin].fetch_add(1) == 0 && origin == own) {
    counts.trace = frames;
    counts.depth = depth;
  }
  inside = false;
}

}  // namespace
}  // namespace lockstep

#if !defined(LOCKSTEP_OTHER_ALLOCATOR)
// The C library's allocator under its other names; these stand in front of it in this program.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) noexcept {
  lockstep::count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  lockstep::count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, size_t bytes) noexcept {
  lockstep::count_allocation();
  return __libc_realloc(data, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  lockstep::count_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  lockstep::count_allocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** data, size_t alignment, size_t bytes) noexcept {
  lockstep::count_allocation();
  *data = __libc_memalign(alignment, bytes);
  return *data ? 0 : ENOMEM;
}
}  // extern "C"
#endif

namespace lockstep {
namespace {

class Allocations : public testing::Test {
 protected:
  void SetUp() override {
#if defined(LOCKSTEP_OTHER_ALLOCATOR)
    GTEST_SKIP() << "a sanitizer has its own allocator";
#endif
    // The first backtrace loads a library.
    std::array<void*, 4> frames{};
    backtrace(frames.data(), 4);
  }
  void TearDown() override { counting = false; }

  template <class F>
  static std::array<int64_t, kOrigins> during(F&& f) {
    for (auto& count : counts.allocations) count = 0;
    counts.depth = 0;
    counting = true;
    f();
    counting = false;
    std::array<int64_t, kOrigins> result{};
    for (size_t i = 0; i < kOrigins; ++i) result[i] = counts.allocations[i];
    return result;
  }

  static std::string first_own_allocation() {
    std::string text;
    const int depth = counts.depth;
    char** symbols = backtrace_symbols(counts.trace.data(), depth);
    for (int i = 0; symbols && i < depth; ++i) text += std::string(symbols[i]) + "\n";
    std::free(symbols);
    return text;
  }

  // After the first runs, `step` allocates nothing of its own, and others no more than before.
  template <class F>
  static void expect_none(const char* name, F&& step) {
    for (int i = 0; i < 5; ++i) step();
    const auto first = during(step);
    constexpr int kSteps = 10;
    const auto later = during([&] {
      for (int i = 0; i < kSteps; ++i) step();
    });
    std::cout << name << ": per step oneDNN allocates " << static_cast<double>(later[onednn]) / kSteps
              << " times, OpenMP " << static_cast<double>(later[openmp]) / kSteps << ", others "
              << static_cast<double>(later[other]) / kSteps << ", Lockstep "
              << static_cast<double>(later[own]) / kSteps << "\n";
    EXPECT_EQ(later[own], 0) << first_own_allocation();
    EXPECT_EQ(later[other], 0);
    EXPECT_EQ(later[onednn], kSteps * first[onednn]);
    EXPECT_LE(later[openmp], kSteps * first[openmp]);
  }

  static void expect_none_in_training(const char* name, models::Model& model, const Tensor& x,
                                      const FunctionOptions& options) {
    auto optimizer = keras::optimizers::Adam();
    auto step = function(
        [&](const Tensor& in, const Tensor& y) { return models::train_step(model, optimizer, in, y); },
        options);
    const Tensor y = models::random_labels(x.shape()[0], 10, 2);
    expect_none(name, [&] { step(x, y); });
  }
};

TEST_F(Allocations, AreCountedAndLaidToTheirOrigin) {
  const auto counted = during([] {
    void* volatile data = std::malloc(10);
    std::free(data);
    data = std::calloc(2, 10);
    std::free(data);
    data = ::operator new(20);
    ::operator delete(data);
    data = std::aligned_alloc(64, 64);
    std::free(data);
  });
  EXPECT_EQ(counted[own], 4) << "this program counts as Lockstep: its headers are inlined here";
  const auto library = during([] { Tensor::empty(DType::float32, {3}); });
  EXPECT_GE(library[own], 1);
  EXPECT_NE(first_own_allocation().find("liblockstep"), std::string::npos) << first_own_allocation();
  const auto none = during([] {});
  for (const int64_t count : none) EXPECT_EQ(count, 0);
}

TEST_F(Allocations, NoneInACompiledStepOnOneDevice) {
  models::Mlp model(1);
  expect_none_in_training("mlp, one device", model, models::random_inputs({32, 784}, 1), {});
}

TEST_F(Allocations, NoneInACompiledStepOnTwoThreads) {
  const DeviceScope scope(two_thread_device());
  models::Mlp model(1);
  expect_none_in_training("mlp, two threads", model, models::random_inputs({32, 784}, 1), {});
}

TEST_F(Allocations, NoneInACompiledStepOnTwoDevices) {
  models::Mlp model(1);
  expect_none_in_training("mlp, two devices", model, models::random_inputs({32, 784}, 1),
                          {.replicas = {.devices = first_devices(2)}});
}

TEST_F(Allocations, NoneInAStepThatIsSplitOverTwoDevices) {
  const auto made_on = [](const char* where) {
    const auto scope = device(where);
    return Variable(models::random_inputs({64, 64}, 1));
  };
  const Variable first = made_on("/CPU:0"), second = made_on("/CPU:1");
  auto step = function([&](const Tensor& x) {
    GradientTape tape;
    const Tensor h = tanh(matmul(x, first));
    const auto scope = device("/CPU:1");
    const Tensor loss = reduce_mean(square(matmul(h, second)));
    const TensorList gradients = tape.gradient(loss, std::vector<Variable>{first, second});
    first.assign_sub(gradients[0] * 0.1);
    second.assign_sub(gradients[1] * 0.1);
    return loss;
  });
  const Tensor x = models::random_inputs({32, 64}, 2);
  expect_none("split over two devices", [&] { step(x); });
}

TEST_F(Allocations, NoneInAReproducibleStepOnThreeDevices) {
  models::Mlp model(1, 0.2);
  expect_none_in_training("mlp, three devices, reproducible, dropout", model,
                          models::random_inputs({30, 784}, 1),
                          {.replicas = {.devices = first_devices(3), .reproducible = true}});
}

TEST_F(Allocations, NoneInAReproducibleStepOnTwoThreads) {
  models::Mlp model(1);
  expect_none_in_training("mlp, two threads, reproducible", model, models::random_inputs({32, 784}, 1),
                          {.replicas = {.devices = {&two_thread_device()}, .reproducible = true}});
}

TEST_F(Allocations, NoneInAStepOfAConvolutionalNetwork) {
  models::ConvNet model(1, true, DType::float32, 14, 4, 16);
  expect_none_in_training("convnet", model, models::random_inputs({8, 14, 14, 1}, 1), {});
}

TEST_F(Allocations, NoneInAStepOfATransformer) {
  models::Transformer model(1, 0.1);
  expect_none_in_training(
      "transformer", model,
      models::random_tokens({8, models::Transformer::kLength}, models::Transformer::kVocabulary, 1), {});
}

TEST_F(Allocations, NoneInLoopsAndBranches) {
  const Variable w(models::random_inputs({16, 16}, 1));
  auto step = function([&](const Tensor& x) {
    GradientTape tape;
    const ScanResult r = scan(
        [&](std::span<const Tensor> c, std::span<const Tensor> s) {
          const Tensor h = dropout(tanh(matmul(c[0], w) + s[0]), 0.1);
          const Tensor y = cond(
              reduce_sum(h) > 0.0, [&] { return h * 2.0; }, [&] { return h - 1.0; });
          return ScanResult{{h}, {y}};
        },
        {reduce_sum(x, {.axis = {0}})}, {x});
    const Tensor gradient = tape.gradient(reduce_sum(square(r.ys[0])), w);
    return while_loop([](std::span<const Tensor> v) { return v[0] < 10.0; },
                      [](std::span<const Tensor> v) { return TensorList{v[0] + 1.0}; },
                      {tanh(reduce_sum(gradient))})[0];
  });
  const Tensor x = models::random_inputs({5, 8, 16}, 2);
  expect_none("loops and branches", [&] { step(x); });
}

TEST_F(Allocations, NoneWithAClock) {
  models::Mlp model(1);
  observe::StepClock clock({.replicas = 2});
  auto optimizer = keras::optimizers::Adam();
  auto step =
      function([&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); },
               {.replicas = {.devices = first_devices(2)}, .clock = &clock});
  const Tensor x = models::random_inputs({32, 784}, 1), y = models::random_labels(32, 10, 2);
  expect_none("mlp, two devices, step clock", [&] {
    clock.begin_step();
    step(x, y);
    clock.end_step();
  });
}

TEST_F(Allocations, NoneInAStepOfFit) {
  const keras::Sequential model(
      {keras::layers::Dense(128, {.activation = "relu", .input_shape = {784}}), keras::layers::Dense(10)});
  model.compile({.optimizer = "adam",
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  // From the 20th step to the 60th of each epoch.
  const auto watch = [](int64_t batch, const keras::Logs&) {
    if (batch == 20 || batch == 60) counting = batch == 20;
  };
  for (auto& count : counts.allocations) count = 0;
  counts.depth = 0;
  constexpr int64_t kExamples = 32 * 70;
  model.fit(models::random_inputs({kExamples, 784}, 1), models::random_labels(kExamples, 10, 2),
            {.epochs = 2,
             .verbose = 2,
             .callbacks = {keras::callbacks::LambdaCallback({.on_train_batch_begin = watch})}});
  EXPECT_EQ(counts.allocations[own], 0) << first_own_allocation();
  EXPECT_EQ(counts.allocations[other], 0);
  EXPECT_GT(counts.allocations[onednn], 0) << "the steps were watched";
}

TEST_F(Allocations, NoneWhereAResultIsHeldForAWhile) {
  models::Mlp model(1);
  auto optimizer = keras::optimizers::Adam();
  auto step =
      function([&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); });
  const Tensor x = models::random_inputs({32, 784}, 1), y = models::random_labels(32, 10, 2);
  Tensor previous;  // as a loop that reports the last loss
  expect_none("mlp, last loss held", [&] { previous = step(x, y); });
}

}  // namespace
}  // namespace lockstep
