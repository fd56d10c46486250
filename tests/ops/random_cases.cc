#include "lockstep/ops/random.h"

#include <cmath>
#include <numbers>

#include "ops/op_case.h"
#include "ops/random/random.h"

namespace lockstep::testing {
namespace {

// --- one number of a row, by its definition ----------------------------------------------------------------

struct Row {
  uint64_t key, number;
  std::array<uint32_t, 4> block(uint64_t counter) const { return Philox::block(key, number, counter); }
};

double unit(uint32_t word, int bits) { return std::ldexp(static_cast<double>(word >> (32 - bits)), -bits); }
double unit53(uint32_t low, uint32_t high) {
  return std::ldexp(static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 11), -53);
}

double uniform_of(const Row& row, uint64_t column, DType dtype) {
  if (dtype == DType::float64) {
    const auto w = row.block(column / 2);
    return unit53(w[column % 2 * 2], w[column % 2 * 2 + 1]);
  }
  const uint32_t word = row.block(column / 4)[column % 4];
  return unit(word, dtype == DType::bfloat16 ? 8 : dtype == DType::float16 ? 11 : 24);
}

double kept_of(const Row& row, uint64_t column, DType) {
  return uniform_of(row, column, DType::float32) >= 0.3;
}

// Box-Muller of a number in (0, 1] and an angle: even elements take the cosine, odd ones the sine.
double box_muller(double u, double turn, bool odd) {
  const double angle = 2 * std::numbers::pi * turn;
  return std::sqrt(-2 * std::log(u)) * (odd ? std::sin(angle) : std::cos(angle));
}

double normal_of(const Row& row, uint64_t column, DType dtype) {
  const bool odd = column % 2 != 0;
  if (dtype == DType::float64) {
    const auto w = row.block(column / 2);
    return box_muller(unit53(w[0], w[1]) + 0x1p-53, unit53(w[2], w[3]), odd);
  }
  const auto w = row.block(column / 4);
  const uint64_t pair = column % 4 / 2 * 2;
  return box_muller(unit(w[pair], 24) + 0x1p-24, unit(w[pair + 1], 24), odd);
}

double held(double x, DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return static_cast<float>(BFloat16(static_cast<float>(x)));
    case DType::float16: return static_cast<float>(Float16(static_cast<float>(x)));
    default: return x;
  }
}

// Drawn again while outside, from blocks of its own for every attempt.
double truncated_of(const Row& row, uint64_t column, DType dtype) {
  double z = normal_of(row, column, dtype);
  for (uint64_t attempt = 1; std::abs(held(z, dtype)) > 2; ++attempt) {
    const auto w = row.block(attempt << 48 | column);
    z = box_muller(unit53(w[0], w[1]) + 0x1p-53, unit53(w[2], w[3]), false);
  }
  return z;
}

// Kept small enough for a double.
double integer_of(const Row& row, uint64_t column, DType) {
  __extension__ using Wide = unsigned __int128;
  const auto w = row.block(column / 2);
  const size_t k = column % 2 * 2;
  const uint64_t bits = static_cast<uint64_t>(w[k + 1]) << 32 | w[k];
  return -7 + static_cast<double>(static_cast<uint64_t>(Wide{bits} * 1000003 >> 64));
}

using Number = double (*)(const Row&, uint64_t column, DType);

Reference drawn(Number number, const RandomAttrs& attrs) {
  return [=](const Arrays& in) {
    Array out(attrs.shape);
    const int64_t rows = attrs.rows_per_example > 0 ? attrs.shape[0] : 1;
    const auto width = static_cast<uint64_t>(rows > 0 ? attrs.shape.size() / rows : 0);
    const uint64_t key = random_key(static_cast<int64_t>(in[0].values[0]), attrs.instance);
    const auto first_row =
        static_cast<uint64_t>(in[1].values[0]) * static_cast<uint64_t>(attrs.rows_per_example);
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = number({key, first_row + i / width}, i % width, attrs.dtype);
    return out;
  };
}

OpCase random_case(const std::string& op, const CaseName& suffix, Number number, const RandomAttrs& attrs,
                   int64_t example = 0) {
  const bool exact = op == "random_uniform" || op == "random_threshold" || op == "random_integer" ||
                     op == "random_permutation";
  return {.name = op + suffix,
          .op = op,
          .inputs = {given({}, {123456789}).of(always<DType::int64>),
                     given({}, {static_cast<double>(example)}).of(always<DType::int64>)},
          .attrs = attrs,
          .reference = drawn(number, attrs),
          .dtypes = {attrs.dtype},
          .tolerance = exact ? Tolerance::exact : Tolerance::summed,
          .results = {always_dtype(attrs.dtype)},
          .derivatives = 0,
          .same_bits_on_threads = true};
}

OpCases cases() {
  const std::pair<const char*, Number> distributions[] = {{"random_uniform", uniform_of},
                                                          {"random_normal", normal_of},
                                                          {"random_truncated_normal", truncated_of}};
  OpCases all;
  for (const auto& [op, number] : distributions) {
    for (const DType dtype : kFloats) {
      all.push_back(random_case(op, detail::concat("_of_", dtype), number,
                                {.shape = {3, 7}, .dtype = dtype, .instance = 2}));
      all.push_back(random_case(op, detail::concat("_rows_of_", dtype), number,
                                {.shape = {4, 5}, .dtype = dtype, .instance = 1, .rows_per_example = 2}, 10));
      all.push_back(random_case(op, detail::concat("_large_of_", dtype), number,
                                {.shape = {101, 401}, .dtype = dtype, .rows_per_example = 1}, 3));
      all.back().threads_only = true;
    }
    all.push_back(random_case(op, "_scalar", number, {.shape = {}}));
    all.push_back(random_case(op, "_empty", number, {.shape = {0, 3}}));
    all.push_back(random_case(op, "_empty_rows", number, {.shape = {3, 0}, .rows_per_example = 1}));
  }
  const auto threshold = [&](const CaseName& suffix, const Shape& shape, int64_t rows_per_example) {
    return random_case("random_threshold", suffix, kept_of,
                       {.shape = shape,
                        .dtype = DType::boolean,
                        .instance = 4,
                        .rows_per_example = rows_per_example,
                        .threshold = 0.3},
                       6);
  };
  for (const DType dtype : {DType::int32, DType::int64}) {
    const auto integer = [&](const CaseName& suffix, const Shape& shape, int64_t rows_per_example) {
      return random_case("random_integer", detail::concat(suffix, "_of_", dtype), integer_of,
                         {.shape = shape,
                          .dtype = dtype,
                          .instance = 5,
                          .rows_per_example = rows_per_example,
                          .low = -7,
                          .range = 1000003},
                         4);
    };
    all.insert(all.end(), {integer("", {5, 9}, 0), integer("_rows", {6, 7}, 3), integer("_scalar", {}, 0),
                           integer("_empty", {0}, 0), threads_only(integer("_large", {101, 401}, 1))});
  }
  const auto permutation = [](int64_t count) {
    const RandomAttrs attrs{.shape = {count}, .dtype = DType::int64, .instance = 3};
    OpCase c = random_case("random_permutation", detail::concat("_of_", count), {}, attrs);
    c.reference = [attrs](std::span<const Array> in) {
      Array out(attrs.shape);
      const Permutation order(random_key(static_cast<int64_t>(in[0].values[0]), attrs.instance),
                              attrs.shape[0]);
      for (size_t i = 0; i < out.values.size(); ++i)
        out.values[i] = static_cast<double>(order(static_cast<int64_t>(i)));
      return out;
    };
    return c;
  };
  for (const int64_t count : {1, 2, 1000, 10000}) all.push_back(permutation(count));
  all.push_back(threads_only(permutation(60000)));
  all.push_back(random_case("random_permutation", "_empty", {}, {.shape = {0}, .dtype = DType::int64}));
  all.push_back(threshold("", {5, 9}, 0));
  all.push_back(threshold("_rows", {6, 9}, 3));
  all.push_back(threshold("_scalar", {}, 0));
  all.push_back(threshold("_empty", {0}, 0));
  all.push_back(threshold("_large", {101, 801}, 1));
  all.back().threads_only = true;
  return all;
}

BadCalls bad_calls() {
  using enum ErrorCode;
  return {
      {"random_uniform_range",
       invalid_argument,
       {"random_uniform: ", "2", "1"},
       [] { random::uniform({2}, {.minval = 2, .maxval = 1}); }},
      {"random_uniform_of_bytes",
       dtype_mismatch,
       {"random_uniform: ", "uint8"},
       [] { random::uniform({2}, {.dtype = DType::uint8}); }},
      {"random_uniform_of_fractions",
       dtype_mismatch,
       {"random_uniform: ", "2.5", "int32"},
       [] { random::uniform({2}, {.maxval = 2.5, .dtype = DType::int32}); }},
      {"random_uniform_of_no_integer",
       invalid_argument,
       {"random_uniform: ", "3"},
       [] { random::uniform({2}, {.minval = 3, .maxval = 3, .dtype = DType::int64}); }},
      {"permutation_negative", invalid_argument, {"permutation: ", "-1"}, [] { random::permutation(-1); }},
      {"shuffle_of_scalar", shape_mismatch, {"shuffle: ", "scalar"}, [] { random::shuffle(sample({})); }},
      {"categorical_shape",
       shape_mismatch,
       {"categorical: ", "(3,)"},
       [] { random::categorical(sample({3}), 2); }},
      {"categorical_dtype",
       dtype_mismatch,
       {"categorical: ", "int32(2, 3)"},
       [] {
         random::categorical(sample({2, 3}, DType::int32), 2);
       }},
      {"categorical_samples",
       invalid_argument,
       {"categorical: ", "-2"},
       [] {
         random::categorical(sample({2, 3}), -2);
       }},
      {"random_uniform_of_booleans",
       dtype_mismatch,
       {"random_uniform: ", "bool"},
       [] { random::uniform({2}, {.dtype = DType::boolean}); }},
      {"random_normal_of_booleans",
       dtype_mismatch,
       {"random_normal: ", "bool"},
       [] { random::normal({2}, {.dtype = DType::boolean}); }},
      {"random_normal_of_integers",
       dtype_mismatch,
       {"random_normal: ", "int64"},
       [] { random::normal({2}, {.dtype = DType::int64}); }},
      {"random_normal_shape",
       invalid_argument,
       {"random_normal: ", "(2, -1)"},
       [] {
         random::normal({2, -1});
       }},
      {"random_truncated_normal_of_integers",
       dtype_mismatch,
       {"random_truncated_normal: ", "uint8"},
       [] { random::truncated_normal({2}, {.dtype = DType::uint8}); }},
      {"random_bernoulli_probability",
       invalid_argument,
       {"bernoulli: ", "1.5"},
       [] { random::bernoulli({2}, 1.5); }},
      {"dropout_rate",
       invalid_argument,
       {"dropout: ", "1"},
       [] {
         dropout(sample({2, 3}), 1);
       }},
      {"dropout_dtype",
       dtype_mismatch,
       {"dropout: ", "int32(2, 3)"},
       [] {
         dropout(sample({2, 3}, DType::int32), 0.5);
       }},
      {"dropout_noise_shape",
       shape_mismatch,
       {"dropout: ", "(2, 2)", "(2, 3)"},
       [] {
         dropout(sample({2, 3}), 0.5, {.noise_shape = {2, 2}});
       }},
      {"dropout_of_none", invalid_argument, {"dropout: ", "none"}, [] { dropout(Tensor(), 0.5); }},
  };
}

}  // namespace

const Family kRandomFamily{cases, bad_calls};

}  // namespace lockstep::testing
