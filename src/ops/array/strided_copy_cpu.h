// Copies elements between two layouts of one shape: prepared once, run many times.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor/shape.h"

namespace lockstep::cpu {

// Runs of memory are copied whole; where source and target are dense along different dimensions, the copy
// goes through square tiles, so that every cache line is read and written once.
class StridedCopy {
 public:
  // Strides in elements; a source stride of 0 repeats an element. Targets of different elements do not
  // overlap.
  StridedCopy(const Shape& shape, const Strides& source, const Strides& target, DType dtype);

  // Uses at most `threads` threads, fewer for little data.
  void run(const void* source, void* target, int threads) const;

 private:
  struct Dim {
    int64_t size, source, target;
  };
  enum class Inner : uint8_t { run, backwards, repeat, tile, single };

  template <class Element>
  void run_as(const Element* source, Element* target, int threads) const;
  template <class Element>
  void copy_inner(const Element* source, Element* target, int64_t lanes) const;

  std::vector<Dim> outer_;  // what is looped over around the inner copy
  Dim inner_ = {1, 1, 1};
  Dim lanes_ = {1, 0, 0};  // tile only: the dimension along which the source is dense
  Inner kind_ = Inner::run;
  int64_t elements_ = 0;
  size_t width_ = 0;
};

}  // namespace lockstep::cpu
