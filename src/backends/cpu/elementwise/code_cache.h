// Remembers the code of elementwise programs, so that each is compiled once.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "backends/cpu/elementwise/block.h"

namespace lockstep::cpu {

enum class CodeKind : uint8_t { interpreter, avx2, avx512 };

// Thread-safe. Holds up to `capacity` programs and drops the one not asked for longest; code stays
// alive as long as somebody holds it.
class CodeCache {
 public:
  explicit CodeCache(size_t capacity) : capacity_(capacity) {}

  // The one that kernels share.
  static CodeCache& global();

  // Code for `program` with operands accessed as given (inputs, then outputs). Where the instruction
  // set cannot do it, this is the interpreter. Throws Error where the program is not valid.
  std::shared_ptr<const BlockCode> find(const elementwise::ScalarProgram& program,
                                        std::span<const Access> accesses, CodeKind kind, bool streaming);

  size_t size() const;

 private:
  struct Entry {
    uint64_t hash;
    elementwise::ScalarProgram program;
    std::vector<Access> accesses;
    CodeKind kind;
    bool streaming;
    std::shared_ptr<const BlockCode> code;
  };
  using Entries = std::list<Entry>;

  std::shared_ptr<const BlockCode> lookup(uint64_t hash, const elementwise::ScalarProgram& program,
                                          std::span<const Access> accesses, CodeKind kind, bool streaming);

  const size_t capacity_;
  mutable std::mutex mutex_;
  Entries entries_;  // used last comes first
  std::unordered_multimap<uint64_t, Entries::iterator> by_hash_;
};

}  // namespace lockstep::cpu
