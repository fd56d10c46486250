#include "lockstep/keras/layers/lookup.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "graph/emit.h"
#include "keras/layers/adaptable.h"
#include "keras/layers/category_encoding.h"
#include "keras/layers/lookup.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"

namespace lockstep::keras::layers {
namespace {

struct IntegerLookupSettings {
  IntegerLookupOptions options;
  std::string oov_method = "floormod", vocabulary_dtype = "int64";
  Salt salt = {};
  bool sparse = false;
  void visit(auto& v) {
    visit_lookup(v, options);
    v("oov_method", oov_method);
    if constexpr (requires { v.ignore("salt"); }) {
      SaltField given{salt};
      v("salt", given);
    }
    v("vocabulary_dtype", vocabulary_dtype);
    v("sparse", sparse);
    visit_maybe(v, "vocabulary", options.vocabulary);
    visit_maybe(v, "idf_weights", options.idf_weights, kFinite);
    if constexpr (requires { v.ignore("vocabulary_size"); }) {
      v.ignore("vocabulary_size");
      v.ignore("has_input_vocabulary");
    }
  }
};

class IntegerLookupLayer final : public ConfiguredLayer<IntegerLookupSettings>, public Adaptable {
 public:
  static constexpr const char* kClassName = "IntegerLookup";
  IntegerLookupLayer(const char* class_name, IntegerLookupSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    const auto here = std::source_location::current();
    IntegerLookupOptions& o = settings_.options;
    o.output_mode = checked_mode(o.output_mode, true, kClassName, here);
    check_lookup(o, kClassName, here);
    require(settings_.oov_method == "floormod" || settings_.oov_method == "farmhash",
            ErrorCode::invalid_argument, here,
            "IntegerLookup: oov_method must be \"floormod\" or \"farmhash\", received \"",
            settings_.oov_method, "\"");
    // Of one number for all that is unknown no method says anything.
    require((settings_.oov_method == "floormod" && !settings_.salt) || o.num_oov_indices < 2,
            ErrorCode::unsupported, here,
            "IntegerLookup: oov_method must be \"floormod\", without a salt, received \"",
            settings_.oov_method,
            "\": hashes are made on the host, by StringLookup and Hashing, while this layer runs on devices");
    require(settings_.vocabulary_dtype == "int64" || settings_.vocabulary_dtype == "int32",
            ErrorCode::invalid_argument, here,
            "IntegerLookup: vocabulary_dtype must be int64 or int32, received \"", settings_.vocabulary_dtype,
            "\"");
    require(!settings_.sparse, ErrorCode::unsupported, here,
            "IntegerLookup: sparse must be false: there are no sparse tensors; rows have one length, with "
            "zeros where "
            "nothing is");
    if (!o.vocabulary.empty()) use(o.vocabulary, o.idf_weights, here);
  }

  // A vocabulary that is given, with or without the special tokens at its beginning.
  void use(const std::vector<int64_t>& tokens, const std::vector<double>& idf_weights,
           std::source_location where) {
    IntegerLookupOptions& o = settings_.options;
    std::vector<int64_t> plain = plain_tokens(tokens, specials(), o.max_tokens, kClassName, where);
    require(o.output_mode != "tf_idf" || idf_weights.size() == plain.size(), ErrorCode::invalid_argument,
            where, "IntegerLookup: ", plain.size(), " tokens need as many idf_weights, received ",
            idf_weights.size());
    require(!plain.empty(), ErrorCode::invalid_argument, where, "IntegerLookup: a vocabulary needs tokens");
    o.vocabulary = std::move(plain);
    o.idf_weights = idf_weights;
    given_ = true;
  }

  void adapt(const Tensor& data, std::source_location where) override {
    IntegerLookupOptions& o = settings_.options;
    require(!given_, ErrorCode::failed_precondition, where,
            "IntegerLookup: a vocabulary was given; there is nothing to adapt");
    require(data.defined() && data.size() > 0, ErrorCode::invalid_argument, where,
            "IntegerLookup: adapt() needs data");
    const std::vector<int64_t> all = cast(data, DType::int64).to_vector<int64_t>();
    const int64_t width = data.rank() > 1 ? static_cast<int64_t>(all.size()) / data.shape()[0] : 1;
    std::map<int64_t, int64_t> counts, documents_with;
    for (auto row = all.begin(); row != all.end(); row += width) {
      std::for_each(row, row + width, [&](int64_t token) { ++counts[token]; });
      for (const int64_t token : std::set(row, row + width)) ++documents_with[token];
    }
    if (o.mask_token) counts.erase(*o.mask_token);
    counts.erase(o.oov_token);
    o.vocabulary = ranked(counts, o.max_tokens ? std::optional(*o.max_tokens - token_start()) : std::nullopt);
    if (o.output_mode != "tf_idf") return;
    std::vector<int64_t> with;
    for (const int64_t token : o.vocabulary) with.push_back(documents_with[token]);
    o.idf_weights = worth_of(with, static_cast<int64_t>(all.size()) / width, 0);
  }

  Tensor call(const Tensor& input, const CallContext&) override {
    const IntegerLookupOptions& o = settings_.options;
    require(!o.vocabulary.empty(), ErrorCode::failed_precondition, where(),
            "IntegerLookup: there is no vocabulary yet; call adapt(), or give one");
    const Tensor x = cast(input, DType::int64);
    if (o.invert) return inverted(x);
    const Tensor number = numbers_of(x);
    if (o.output_mode == "int") return number;
    const int64_t depth = o.pad_to_max_tokens ? *o.max_tokens : vocabulary_size();
    if (o.output_mode != "tf_idf") return encode(number, o.output_mode, depth, DType::int64);
    std::vector<double> worth = o.idf_weights;
    const double mean = std::accumulate(worth.begin(), worth.end(), 0.0) / static_cast<double>(worth.size());
    worth.insert(worth.begin(), static_cast<size_t>(token_start()), mean);
    worth.resize(static_cast<size_t>(depth), 0);
    return encode(number, "count", depth, DType::float32) *
           table(std::vector<float>(worth.begin(), worth.end()));
  }
  bool autocast_inputs() const override { return false; }

  std::vector<int64_t> vocabulary() const {
    std::vector<int64_t> all = specials();
    all.insert(all.end(), settings_.options.vocabulary.begin(), settings_.options.vocabulary.end());
    return all;
  }

 private:
  int64_t oov_start() const {
    return settings_.options.mask_token && settings_.options.output_mode == "int" ? 1 : 0;
  }
  int64_t token_start() const { return oov_start() + settings_.options.num_oov_indices; }
  int64_t vocabulary_size() const { return token_start() + std::ssize(settings_.options.vocabulary); }
  std::vector<int64_t> specials() const {
    const IntegerLookupOptions& o = settings_.options;
    std::vector<int64_t> specials(static_cast<size_t>(oov_start()), o.mask_token.value_or(0));
    specials.insert(specials.end(), static_cast<size_t>(o.num_oov_indices), o.oov_token);
    return specials;
  }

  template <class T>
  static Tensor table(const std::vector<T>& values) {
    const TracePause outside;
    return Tensor::from(values, {std::ssize(values)});
  }

  // A look into the sorted tokens says where one would stand, and whether it stands there.
  Tensor numbers_of(const Tensor& x) const {
    const IntegerLookupOptions& o = settings_.options;
    std::vector<std::pair<int64_t, int64_t>> sorted;
    for (const int64_t token : o.vocabulary)
      sorted.emplace_back(token, token_start() + static_cast<int64_t>(sorted.size()));
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> tokens, numbers;
    for (const auto& [token, number] : sorted) {
      tokens.push_back(token);
      numbers.push_back(number);
    }
    const Tensor keys = table(tokens);
    const Tensor place = reshape(searchsorted(keys, reshape(x, {-1})), x.shape());
    const Tensor at = minimum(cast(place, DType::int64), std::ssize(tokens) - 1);
    Tensor unknown = full_like(x, o.num_oov_indices == 0 ? kNoCategory : oov_start());
    if (o.num_oov_indices > 1) unknown = floormod(x, o.num_oov_indices) + oov_start();
    Tensor number = lockstep::where(equal(gather(keys, at), x), gather(table(numbers), at), unknown);
    if (o.mask_token)
      number =
          lockstep::where(equal(x, *o.mask_token), o.output_mode == "int" ? int64_t{0} : kNoCategory, number);
    return number;
  }
  static Tensor full_like(const Tensor& x, int64_t value) { return zeros_like(x) + value; }

  Tensor inverted(const Tensor& x) const {
    const std::vector<int64_t> all = vocabulary();
    const Tensor inside = logical_and(x >= 0, x < std::ssize(all));
    return lockstep::where(inside, gather(table(all), lockstep::where(inside, x, 0)),
                           settings_.options.oov_token);
  }

  bool given_ = false;
};
const RegisterLayer<IntegerLookupLayer> integer_lookup;

}  // namespace

AdaptableLayer IntegerLookup(const IntegerLookupOptions& options, std::source_location where) {
  const CallSite site(where);
  return AdaptableLayer(make_configured<IntegerLookupLayer>({options}).base());
}

namespace {

IntegerLookupLayer& integer_lookup_of(const Layer& layer, const char* what, std::source_location where) {
  auto* found = dynamic_cast<IntegerLookupLayer*>(layer.base().get());
  require(found, ErrorCode::invalid_argument, where, what, ": this names no IntegerLookup");
  return *found;
}

}  // namespace

std::vector<int64_t> get_vocabulary(const Layer& integer_lookup, std::source_location where) {
  return integer_lookup_of(integer_lookup, "get_vocabulary", where).vocabulary();
}
void set_vocabulary(const Layer& integer_lookup, const std::vector<int64_t>& tokens,
                    const std::vector<double>& idf_weights, std::source_location where) {
  integer_lookup_of(integer_lookup, "set_vocabulary", where).use(tokens, idf_weights, where);
}

}  // namespace lockstep::keras::layers
