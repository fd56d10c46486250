// One value or a list of them, as arguments of layers often take: .axis = -1, .axis = {1, 2}.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <type_traits>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep::keras::layers {

// T is int64_t or double. Files tell one value from a list of one, and so does this.
template <class T>
class OneOrMany {
 public:
  OneOrMany() = default;  // not given: null in files
  // NOLINTBEGIN(google-explicit-constructor)
  template <class U>
  requires std::is_arithmetic_v<U> OneOrMany(U one) : values_{static_cast<T>(one)}, single_(true) {}
  OneOrMany(std::initializer_list<T> many) : values_(many), given_list_(true) {}
  OneOrMany(std::vector<T> many) : values_(std::move(many)), given_list_(true) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return single_ || given_list_; }
  bool single() const { return single_; }
  const std::vector<T>& values() const { return values_; }

  Json serialize() const {
    if (!defined()) return {};
    if (single_) return values_[0];
    return Json::List(values_.begin(), values_.end());
  }
  static OneOrMany deserialize(const Json& json,
                               std::source_location where = std::source_location::current()) {
    const auto number = [&](const Json& item) -> T {
      if constexpr (std::integral<T>)
        return item.as_int(where);
      else
        return item.as_double(where);
    };
    if (!json.is_list()) return number(json);
    std::vector<T> values;
    for (const Json& item : json.items()) values.push_back(number(item));
    return values;
  }

 private:
  std::vector<T> values_;
  bool single_ = false;
  bool given_list_ = false;
};

using Axes = OneOrMany<int64_t>;
using Numbers = OneOrMany<double>;

}  // namespace lockstep::keras::layers
