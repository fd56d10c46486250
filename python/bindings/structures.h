// Tensors nested in tuples and dictionaries, here and in Python.
#pragma once

#include "lockstep/data/dataset.h"
#include "lockstep/data/element.h"
#include "python.h"

namespace lockstep::python {

data::Element element(nb::handle value);
// The engine's part of an iterator, which lives as long as the object of Python; null: it is none.
data::Iterator* iterator_of(nb::handle value);
nb::object to_python(const data::Element& element);

// The structure with leaf(i) in the place of leaf number i.
template <class Leaf>
nb::object to_python(const data::Structure& structure, const Leaf& leaf, size_t& next) {
  using Kind = data::Structure::Kind;
  if (structure.kind() == Kind::leaf) return leaf(next++);
  if (structure.kind() == Kind::tuple) {
    nb::list parts;
    for (const data::Structure& part : structure.parts()) parts.append(to_python(part, leaf, next));
    return nb::tuple(parts);
  }
  nb::dict parts;
  for (size_t i = 0; i < structure.parts().size(); ++i)
    parts[structure.names()[i].c_str()] = to_python(structure.parts()[i], leaf, next);
  return parts;
}
template <class Leaf>
nb::object to_python(const data::Structure& structure, const Leaf& leaf) {
  size_t next = 0;
  return to_python(structure, leaf, next);
}

}  // namespace lockstep::python
