#include "lockstep/data/element.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <sstream>

#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// Dictionary keys are written as they are where that is unambiguous.
bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/' ||
         c == '.' || c == '-' || c == ' ';
}

class StructureParser {
 public:
  StructureParser(std::string_view text, std::source_location where) : text_(text), where_(where) {}

  Structure parse() {
    Structure structure = part(0);
    check(at_ == text_.size());
    return structure;
  }

 private:
  static constexpr int kMostDepth = 64;

  void check(bool good) const {
    require(good, ErrorCode::invalid_argument, where_, "'", text_,
            "' is no structure of tensors (as \"(*, {name: *})\") at position ", at_);
  }
  bool accept(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  Structure part(int depth) {
    check(depth < kMostDepth);
    if (accept("*")) return {};
    if (accept("(")) {
      std::vector<Structure> parts;
      while (!accept(")")) {
        if (!parts.empty()) check(accept(", "));
        parts.push_back(part(depth + 1));
      }
      return Structure::tuple(std::move(parts));
    }
    check(accept("{"));
    std::vector<std::pair<std::string, Structure>> parts;
    while (!accept("}")) {
      if (!parts.empty()) check(accept(", "));
      std::string name = key();
      check(accept(": "));
      parts.emplace_back(std::move(name), part(depth + 1));
    }
    return Structure::dict(std::move(parts));
  }
  std::string key() {
    std::string name;
    while (at_ < text_.size() && text_[at_] != ':') {
      if (text_[at_] == '\\') ++at_;
      check(at_ < text_.size());
      name += text_[at_++];
    }
    return name;
  }

  std::string_view text_;
  std::source_location where_;
  size_t at_ = 0;
};

const Structure kLeaf;

size_t first_leaf(const Structure& structure, size_t position) {
  size_t leaf = 0;
  for (size_t i = 0; i < position; ++i) leaf += structure.parts()[i].leaves();
  return leaf;
}

// Writes a value a leaf in the places of the structure.
template <class Write>
void write_nested(std::ostream& out, const Structure& structure, size_t& leaf, const Write& write) {
  if (structure.kind() == Structure::Kind::leaf) {
    write(leaf++);
    return;
  }
  const bool dict = structure.kind() == Structure::Kind::dict;
  out << (dict ? '{' : '(');
  for (size_t i = 0; i < structure.parts().size(); ++i) {
    if (i > 0) out << ", ";
    if (dict) out << structure.names()[i] << ": ";
    write_nested(out, structure.parts()[i], leaf, write);
  }
  out << (dict ? '}' : ')');
}

}  // namespace

Structure Structure::tuple(std::vector<Structure> parts) {
  Structure structure;
  structure.kind_ = Kind::tuple;
  structure.leaves_ = 0;
  for (const Structure& part : parts) structure.leaves_ += part.leaves();
  structure.parts_ = std::move(parts);
  return structure;
}

Structure Structure::dict(std::vector<std::pair<std::string, Structure>> parts) {
  std::vector<Structure> values;
  std::vector<std::string> names;
  for (std::pair<std::string, Structure>& named : parts) {
    names.push_back(std::move(named.first));
    values.push_back(std::move(named.second));
  }
  Structure structure = tuple(std::move(values));
  structure.kind_ = Kind::dict;
  structure.names_ = std::move(names);
  return structure;
}

std::string Structure::path(size_t leaf) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (leaf < parts_[i].leaves())
      return (kind_ == Kind::dict ? "['" + names_[i] + "']" : "[" + std::to_string(i) + "]") +
             parts_[i].path(leaf);
    leaf -= parts_[i].leaves();
  }
  return "";
}

std::string Structure::to_string() const {
  if (kind_ == Kind::leaf) return "*";
  std::string text(1, kind_ == Kind::dict ? '{' : '(');
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (i > 0) text += ", ";
    if (kind_ == Kind::dict) {
      for (const char c : names_[i]) {
        if (!plain(c)) text += '\\';
        text += c;
      }
      text += ": ";
    }
    text += parts_[i].to_string();
  }
  return text + (kind_ == Kind::dict ? '}' : ')');
}

Structure Structure::parse(std::string_view text, std::source_location where) {
  return StructureParser(text, where).parse();
}

std::ostream& operator<<(std::ostream& out, const ElementSpec& spec) {
  size_t leaf = 0;
  write_nested(out, spec.structure, leaf, [&](size_t i) { out << spec.tensors[i]; });
  return out;
}

Element::Element(std::shared_ptr<const Structure> structure, TensorList tensors)
    : structure_(std::move(structure)), tensors_(std::move(tensors)) {
  require(tensors_.size() == this->structure().leaves(), ErrorCode::invalid_argument,
          std::source_location::current(), "an element of structure ", this->structure().to_string(), " has ",
          this->structure().leaves(), " tensors, received ", tensors_.size());
}

Element Element::tuple(const std::vector<Element>& parts) {
  std::vector<Structure> structures;
  TensorList tensors;
  for (const Element& part : parts) {
    structures.push_back(part.structure());
    tensors.insert(tensors.end(), part.flat().begin(), part.flat().end());
  }
  return {std::make_shared<const Structure>(Structure::tuple(std::move(structures))), std::move(tensors)};
}

Element Element::dict(const std::vector<std::pair<std::string, Element>>& parts) {
  std::vector<std::pair<std::string, Structure>> structures;
  TensorList tensors;
  for (const auto& [name, part] : parts) {
    structures.emplace_back(name, part.structure());
    tensors.insert(tensors.end(), part.flat().begin(), part.flat().end());
  }
  return {std::make_shared<const Structure>(Structure::dict(std::move(structures))), std::move(tensors)};
}

const Structure& Element::structure() const { return structure_ ? *structure_ : kLeaf; }

ElementSpec Element::spec() const {
  ElementSpec spec{structure(), {}};
  for (const Tensor& tensor : tensors_) spec.tensors.push_back(tensor.spec());
  return spec;
}

const Tensor& Element::tensor(std::source_location where) const {
  require(!structure_ && !tensors_.empty(), ErrorCode::invalid_argument, where,
          "the element is not one tensor: its structure is ", defined() ? structure().to_string() : "none",
          "; take a part of it first, as element[0] or element[\"name\"]");
  return tensors_[0];
}

size_t Element::size() const { return structure().parts().size(); }

Element Element::part(size_t position) const {
  const Structure& inner = structure().parts()[position];
  const auto begin = tensors_.begin() + static_cast<std::ptrdiff_t>(first_leaf(structure(), position));
  return {inner.kind() == Structure::Kind::leaf ? nullptr : std::make_shared<const Structure>(inner),
          TensorList(begin, begin + static_cast<std::ptrdiff_t>(inner.leaves()))};
}

Element Element::at(size_t position, std::source_location where) const {
  require(position < size(), ErrorCode::invalid_argument, where, "the element ", structure().to_string(),
          " has no part ", position);
  return part(position);
}

Element Element::at(std::string_view name, std::source_location where) const {
  const auto& names = structure().names();
  const auto found = std::find(names.begin(), names.end(), name);
  require(found != names.end(), ErrorCode::not_found, where, "the element ", structure().to_string(),
          " has no part named '", name, "'");
  return part(static_cast<size_t>(found - names.begin()));
}

std::string Element::to_string() const {
  if (!defined()) return "none";
  std::ostringstream out;
  size_t leaf = 0;
  write_nested(out, structure(), leaf, [&](size_t i) { out << tensors_[i]; });
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const Element& element) { return out << element.to_string(); }

Tensor bytes(std::string_view text) {
  return Tensor::from<uint8_t>(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()),
                               {static_cast<int64_t>(text.size())});
}

std::string text(const Tensor& tensor, std::source_location where) {
  require(tensor.dtype() == DType::uint8 && tensor.rank() <= 1, ErrorCode::invalid_argument, where,
          "text() takes bytes, a uint8 tensor of rank 1, received ", tensor.spec());
  const std::vector<uint8_t> values = tensor.to_vector<uint8_t>(where);
  return {values.begin(), values.end()};
}

}  // namespace lockstep::data
