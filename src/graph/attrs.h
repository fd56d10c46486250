// The settings of one use of an op: any struct with defaulted equality and a visit() that names its
// members. Hashing and printing follow from visit, so they cannot miss a member that equality sees.
//
//   struct MatmulAttrs {
//     bool transpose_a = false, transpose_b = false;
//     bool operator==(const MatmulAttrs&) const = default;
//     void visit(auto&& v) const { v("transpose_a", transpose_a); v("transpose_b", transpose_b); }
//   };
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/shape.h"

namespace lockstep {

class AttrHasher {
 public:
  template <class T>
  void operator()(const char*, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      mix(std::bit_cast<uint64_t>(static_cast<double>(value)));
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      mix(static_cast<uint64_t>(value));
    } else if constexpr (std::is_base_of_v<Dims, T>) {
      mix(static_cast<uint64_t>(value.rank()));
      for (const int64_t d : value) mix(static_cast<uint64_t>(d));
    } else if constexpr (requires { value.begin(); }) {
      mix(value.size());
      for (const auto& element : value) (*this)("", element);
    } else {
      mix(hash(value));
    }
  }
  void mix(uint64_t value) {
    state_ ^= value + 0x9e3779b97f4a7c15ull + (state_ << 6) + (state_ >> 2);
    state_ *= 0xff51afd7ed558ccdull;
    state_ ^= state_ >> 32;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x243f6a8885a308d3ull;
};

class AttrPrinter {
 public:
  explicit AttrPrinter(std::ostream& out) : out_(out) {}
  template <class T>
  void operator()(const char* name, const T& value) {
    out_ << (first_ ? "" : ", ") << name << '=';
    first_ = false;
    print(value);
  }

 private:
  template <class T>
  void print(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      out_ << (value ? "true" : "false");
    } else if constexpr (requires { out_ << value; }) {
      out_ << value;
    } else if constexpr (std::is_enum_v<T>) {
      out_ << static_cast<int>(value);
    } else {
      out_ << '[';
      for (const auto& element : value) out_ << element << ' ';
      out_ << ']';
    }
  }
  std::ostream& out_;
  bool first_ = true;
};

// Immutable and cheap to copy. Default: no settings.
class Attrs {
 public:
  Attrs() = default;
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Attrs>)
      Attrs(T value)  // NOLINT(google-explicit-constructor): emit(op, inputs, MatmulAttrs{...})
      : box_(std::make_shared<Box<T>>(std::move(value))) {}

  template <class T>
  const T& as() const {
    const auto* box = dynamic_cast<const Box<T>*>(box_.get());
    require(box != nullptr, ErrorCode::internal, std::source_location::current(),
            "an op was given attributes of type ", box_ ? box_->type().name() : "none",
            " where its rules read ", typeid(T).name());
    return box->value;
  }

  bool operator==(const Attrs& other) const {
    return box_ == other.box_ || (box_ && other.box_ && box_->equals(*other.box_));
  }
  uint64_t hash() const { return box_ ? box_->hash() : 0; }
  friend std::ostream& operator<<(std::ostream& out, const Attrs& attrs) {
    if (attrs.box_) attrs.box_->print(out);
    return out;
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual bool equals(const Base& other) const = 0;
    virtual uint64_t hash() const = 0;
    virtual void print(std::ostream& out) const = 0;
    virtual const std::type_info& type() const = 0;
  };
  template <class T>
  struct Box final : Base {
    explicit Box(T v) : value(std::move(v)) {}
    bool equals(const Base& other) const override {
      const auto* same = dynamic_cast<const Box*>(&other);
      return same && same->value == value;
    }
    uint64_t hash() const override {
      AttrHasher hasher;
      value.visit(hasher);
      return hasher.value();
    }
    void print(std::ostream& out) const override { value.visit(AttrPrinter(out)); }
    const std::type_info& type() const override { return typeid(T); }
    T value;
  };

  std::shared_ptr<const Base> box_;
};

}  // namespace lockstep
