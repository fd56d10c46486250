// Writes the CUDA C of a schedule (source.h): levels and products of tiles in source.cc, rows in
// source_rows.cc, examples in source_examples.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cuda/megakernel/op_rule.h"
#include "backends/cuda/megakernel/source.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda::megakernel {

inline constexpr int64_t kAlignment = 256;
inline int64_t aligned(int64_t bytes, int64_t to = kAlignment) { return (bytes + to - 1) / to * to; }

inline bool defers_errors(const Op& op) { return op.rule && op.rule->deferred_error; }

class Writer {
 public:
  Writer(const OpGraph& graph, const Schedule& schedule, std::span<const TensorSpec> parameters)
      : graph_(graph), schedule_(schedule) {
    find_rows(parameters);
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (defers_errors(graph.ops[i])) source_.reporters.push_back(static_cast<int>(i));
    scratch_.assign(graph.buffers.size(), -1);
  }

  Source run();

 private:
  int64_t threads() const { return schedule_.threads; }
  const Op& op(int i) const { return graph_.ops[static_cast<size_t>(i)]; }

  template <class... Parts>
  void add(const Parts&... parts) {
    body_ += detail::concat(parts..., "\n");
  }

  // --- memory ----------------------------------------------------------------------------------------------

  // The buffer as a pointer to its elements. Memory of the kernel's own is given out to what does not stay in
  // shared memory.
  std::string global(int buffer, DType dtype) const;

  // The place of `what` in the list, at the end of which it is put where it is new.
  static size_t slot_of(std::vector<std::string>& list, const std::string& what);

  // --- rows that every run takes from arrays ---------------------------------------------------------------

  bool is_input(int external) const;

  // All parameters that are read have one number of rows, in whole words.
  void find_rows(std::span<const TensorSpec> parameters);

  std::string write_gather();

  static std::string plus(int64_t offset) {
    return offset == 0 ? std::string() : detail::concat(" + ", offset);
  }

  // The place of an element whose number in row-major order is `flat`, in elements of the access.
  static std::string place(const Access& access, const std::string& flat);

  std::string load_global(const Access& access, const std::string& flat) const;

  // --- levels and tasks ------------------------------------------------------------------------------------

  std::string write_level(int level);

  void write_group(const Group& group, int number);

  // Fills in what an epilogue is called, its members, and what they are made of.
  static std::string with_epilogue(std::string text, const std::string& name, const std::string& members,
                                   const std::string& pointers);

  // Many updates of weights are alike but for where these are: one function serves all, and is compiled once.
  void share_group(int number);

  bool written_here(const Access& access) const;
  // Whether it is written by a member of the group that comes before `op`: a variable's old value is not.
  bool computed_here(const Access& access, int op) const;

  // Whether a member of the group that comes after `op` reads it.
  bool read_here(int buffer, int op) const;

  // Whether what the group reads there was not written by the level before it (of the first: by the last of
  // the step before), for which the group waits.
  bool is_early(const Access& access) const;

  // --- elements: ops that follow one another on the same element -------------------------------------------

  // A struct with what these ops read beside `value`, which the group's first op gives (-1: none does), and
  // what they do with it. `index`: the parameters of load() and finish(), `flat`: an element's number.
  void write_epilogue(const Group& group, const std::string& index, const std::string& flat);

  std::string store(int i, size_t output, const std::string& value, const std::string& flat) const;

  void write_tile(const Group& group);

  void write_columns(const Group& group);

  void write_elements(const Group& group);

  void needs_shared(int64_t bytes) { source_.shared_bytes = std::max(source_.shared_bytes, bytes); }

  // --- rows, and small things one after the other ----------------------------------------------------------

  // Where a value lies in shared memory while a task works on its rows.
  struct Held {
    std::string name;
    int64_t row = 0;              // elements
    int64_t line = 0, pitch = 0;  // of an example: lines of so many elements begin so far apart
    int64_t begin = 0, end = 0;   // of an example: its bytes

    // The place of its element with this number.
    std::string at(const std::string& number) const {
      return line == pitch ? detail::concat(name, "[", number, "]")
                           : detail::concat(name, "[spread<", line, ", ", pitch, ">(", number, ")]");
    }
  };

  // Elements of a row, of a value that has one for each of the group's.
  static int64_t row_size(const Access& access, int64_t rows) { return access.shape.size() / rows; }

  std::string reserve(const std::string& type, const std::string& name, int64_t bytes);

  void write_rows(const Group& group);

  // --- examples --------------------------------------------------------------------------------------------

  // Which bytes of shared memory the values of an example have while they are needed.
  class Places {
   public:
    // From op `first` to op `last` of the group; -1: there is no room.
    int64_t find(int first, int last, int64_t bytes);
    int64_t most() const { return most_; }

   private:
    struct Taken {
      int64_t begin, end;
      int first, last;
    };
    std::vector<Taken> taken_;
    int64_t most_ = 0;
  };

  // Where a buffer that holds examples is read by the group's ops: the last of them, by number in the group;
  // -1: nowhere.
  int last_reader(const Group& group, int buffer) const;

  // Gives the value a place in shared memory, if there is room. Lines of whole banks are moved apart, where
  // nobody reads it as other lines.
  bool hold_example(const Group& group, const Access& value, int64_t elements, int first, int last,
                    Places& places);

  // What others have made of the example and this group reads more than in passing comes to shared memory at
  // once.
  void fetch_examples(const Group& group, Places& places);

  void write_examples(const Group& group);

  // An op of an example is a function of the places of its operands: ops that are alike share it, and there
  // is far less to compile.
  void write_example_op(int i, int64_t examples, int64_t scratch_at);

  // Where the matrix of a product that works on examples comes from: shared memory, if there is room for it
  // while the products before are made, so that nobody waits for it.
  struct Fetch {
    int at = 0;                    // the op's number in the group
    int64_t begin = -1, end = -1;  // bytes; -1: it stays where it is
    int64_t pitch = 0;
  };
  static constexpr size_t kFetchedAhead = 2;

  // How the lines of a matrix lie: whether they go along the inner dimension, how many there are, how long
  // and how far apart.
  struct Lines {
    bool by_k;
    int64_t count, width, stride;
    explicit Lines(const Access& b)
        : by_k(b.strides[0] == 1 && !(b.strides[1] == 1 && b.shape[0] == 1)),
          count(b.shape[by_k ? 1 : 0]),
          width(b.shape[by_k ? 0 : 1]),
          stride(b.strides[by_k ? 1 : 0]) {}
  };

  // Lets the matrix of a product come while op `now` and those behind it are done.
  void fetch_matrix_of(const Group& group, size_t number, int now, Places& places);

  void write_example_product(int i, int64_t examples);

  // --- what rows read, and what ops do with rows -----------------------------------------------------------

  void hold_rows(const Access& input, int64_t rows, int64_t unit);

  // A matrix as it lies in memory, with rows of an odd length: any way through it meets all banks.
  struct Matrix {
    std::string name;
    int64_t pitch = 0;
  };

  void hold_matrix(const Access& input);

  void hold_vector(const Access& input);

  void write_serial(const Group& group);

  // Whether it reads from each row of a value what is in that row.
  static bool in_rows(const Access& access, int64_t row);

  // An element, given its number among those of the rows at hand (of all, in a serial group).
  std::string element(const Access& access, const std::string& flat, int64_t rows) const;

  // A pointer to a line of a dense value: lines in shared memory that were moved apart are several of its
  // own.
  std::string line(const Access& access, const std::string& first, int64_t rows) const;

  std::string put(int i, size_t output, const std::string& flat, const std::string& value,
                  int64_t rows) const;

  void write_op(int i, int64_t rows, int unit);

  // How many of something the rows at hand have, of `all` in all rows.
  std::string count(int64_t all, int64_t rows) const;

  void write_rows_product(int i, int64_t rows, int unit);

  void write_partial_sums(int i, int64_t rows);

  std::string vector_name(const Access& x) const;

  void write_rows_elements(int i, int64_t rows);

  // The code that an op's rule writes.
  class OwnCode final : public OpCode {
   public:
    OwnCode(const Writer& writer, int op, int64_t rows)
        : OpCode(writer.op(op)), writer_(writer), op_(op), rows_(rows) {}
    std::string in(size_t k, const std::string& number) const override {
      return writer_.element(op().inputs[k], number, rows_);
    }
    std::string out(size_t k, const std::string& number, const std::string& value) const override {
      return writer_.put(op_, k, number, value, rows_);
    }
    std::string whole(size_t k, const std::string& number) const override {
      return writer_.load_global(op().inputs[k], number);
    }
    std::string line(size_t k, const std::string& first) const override {
      return writer_.line(op().inputs[k], first, rows_);
    }
    std::string count(int64_t all) const override { return writer_.count(all, rows_); }
    std::string defer_error(const std::string& value) const override {
      const std::vector<int>& all = writer_.source_.reporters;
      const auto reporter = std::find(all.begin(), all.end(), op_) - all.begin();
      return detail::concat(
          "defer_error(p.error[", reporter, "], ",
          writer_.whole_ ? std::string("line") : detail::concat("lo * ", op().outer / rows_, " + line"), ", ",
          value, ");");
    }

   private:
    const Writer& writer_;
    int op_;
    int64_t rows_;
  };

  void write_own_code(int i, int64_t rows);

  // A few threads share a line, all lines of the rows at hand.
  void open_lines(int i, int64_t rows);

  void write_fold(int i, int64_t rows);

  const OpGraph& graph_;
  const Schedule& schedule_;
  Source source_;
  std::vector<Fetch> fetches_;  // of the products of a group of examples, in their order
  const Fetch* fetch_ = nullptr;
  mutable std::vector<int64_t> scratch_;  // by buffer; -1: it has no place yet
  mutable int64_t scratch_bytes_ = 0;
  bool outlined_ = false;  // the code at hand is that of a function, with pointers g0, g1, ... to these
  mutable std::vector<std::string> globals_;
  std::map<std::string, std::string> outlined_by_text_;  // functions of examples' ops, by what they are
  int64_t gathers_ = 0;                                  // tasks that fetch the rows of a run
  std::string functions_;
  std::string body_;  // of the group at hand
  std::string epilogue_;
  int group_ = 0, op_ = 0;
  bool whole_ = false, examples_ = false;
  int64_t shared_ = 0;  // bytes given out
  std::map<int, Held> held_;
  std::map<std::tuple<int, int64_t, int64_t, int64_t, int64_t>, Matrix> matrices_;
};

}  // namespace lockstep::cuda::megakernel
