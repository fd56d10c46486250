// What a Dataset gives, one after another: a tensor, or tensors in tuples and dictionaries, nested in any
// way.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/call_site.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// How the tensors of an element are nested. Immutable.
class Structure {
 public:
  enum class Kind : uint8_t { leaf, tuple, dict };

  Structure() = default;  // a leaf: one tensor
  static Structure tuple(std::vector<Structure> parts);
  // Kept in the order given.
  static Structure dict(std::vector<std::pair<std::string, Structure>> parts);

  Kind kind() const { return kind_; }
  const std::vector<Structure>& parts() const { return parts_; }
  const std::vector<std::string>& names() const { return names_; }  // of a dictionary's parts
  size_t leaves() const { return leaves_; }
  // What leaf number `leaf` is called in messages: "", "[1]", "['image']", "[0]['image']".
  std::string path(size_t leaf) const;

  // "*", "(*, *)", "{image: *, label: *}", and back. parse() throws Error(invalid_argument).
  std::string to_string() const;
  static Structure parse(std::string_view text, std::source_location where = std::source_location::current());

  bool operator==(const Structure&) const = default;

 private:
  Kind kind_ = Kind::leaf;
  std::vector<Structure> parts_;
  std::vector<std::string> names_;
  size_t leaves_ = 1;
};

// The dtypes and shapes of elements; -1 in a shape stands for sizes that differ or are not known.
struct ElementSpec {
  Structure structure;
  std::vector<TensorSpec> tensors;  // one per leaf, in order

  bool operator==(const ElementSpec&) const = default;
};
// "(float32(28, 28), int64())"
std::ostream& operator<<(std::ostream& out, const ElementSpec& spec);

// A handle, cheap to copy. Byte strings (lines, file names, records) are uint8 tensors of rank 1: see text().
class Element {
 public:
  Element() = default;  // without tensors
  // NOLINTBEGIN(google-explicit-constructor): {x, y} and x are elements
  Element(const Tensor& tensor) : tensors_{tensor} {}
  template <class... Rest>
  Element(const Element& first, const Element& second, const Rest&... rest)
      : Element(tuple({first, second, Element(rest)...})) {}
  // NOLINTEND(google-explicit-constructor)
  Element(std::shared_ptr<const Structure> structure, TensorList tensors);

  static Element tuple(const std::vector<Element>& parts);
  static Element dict(const std::vector<std::pair<std::string, Element>>& parts);

  bool defined() const { return !tensors_.empty() || structure_; }
  const Structure& structure() const;
  const std::shared_ptr<const Structure>& shared_structure() const { return structure_; }  // null: a leaf
  // All tensors, in order.
  const TensorList& flat() const { return tensors_; }
  TensorList& flat() { return tensors_; }
  ElementSpec spec() const;

  // The one tensor; throws Error(invalid_argument) where the element is a tuple or a dictionary.
  const Tensor& tensor(std::source_location where = std::source_location::current()) const;
  // Parts; throw Error(invalid_argument) or Error(not_found) saying what there is.
  size_t size() const;
  Element at(size_t position, std::source_location where = std::source_location::current()) const;
  Element at(std::string_view name, std::source_location where = std::source_location::current()) const;
  Element operator[](Located<size_t> position) const { return at(position.value, position.where); }
  Element operator[](Located<std::string_view> name) const { return at(name.value, name.where); }

  std::string to_string() const;

 private:
  Element part(size_t position) const;

  std::shared_ptr<const Structure> structure_;
  TensorList tensors_;
};
std::ostream& operator<<(std::ostream& out, const Element& element);

// A byte string as a tensor, and back.
Tensor bytes(std::string_view text);
std::string text(const Tensor& tensor, std::source_location where = std::source_location::current());

}  // namespace lockstep::data
