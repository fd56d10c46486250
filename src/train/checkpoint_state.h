// The file `checkpoint` of a folder: which checkpoints there are, and which is the latest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/file_system.h"

namespace lockstep::train {

struct KeptCheckpoint {
  std::string name;  // in the folder, without its ending
  double time = 0;   // seconds since 1970
};

struct CheckpointState {
  std::string latest;
  std::vector<KeptCheckpoint> all;        // oldest first
  std::vector<KeptCheckpoint> preserved;  // beyond those that are kept by number
};

// Which checkpoints stay when another is entered.
struct Retention {
  int max_to_keep = 0;        // 0: all
  double preserve_every = 0;  // seconds; 0: none
  double preserved_last = 0;  // where none is preserved yet: when counting began
};

// Nullopt where there is no such file or it cannot be understood, which is logged.
std::optional<CheckpointState> read_state(const std::string& folder);

// Enters a checkpoint that is on the disk as the latest, then removes those that need not stay.
void enter_checkpoint(FileSystem& files, const std::string& folder, const KeptCheckpoint& saved,
                      const Retention& retention);

// The number at the end of "ckpt-12", for names that begin with this prefix and a dash: the greatest among
// the files of a folder, complete or not. 0 where there is none.
int64_t greatest_number(const std::string& folder, const std::string& prefix);

// Saves under way in this process, by folder. Who looks for checkpoints waits for those that are being
// written.
class SaveUnderWay {
 public:
  explicit SaveUnderWay(const std::string& folder);
  ~SaveUnderWay();
  SaveUnderWay(const SaveUnderWay&) = delete;
  SaveUnderWay& operator=(const SaveUnderWay&) = delete;
  static void wait_for(const std::string& folder);

 private:
  std::string folder_;
};

// Names of all checkpoints of a folder, the latest first: as the state says, then by number.
std::vector<std::string> checkpoints_by_age(const std::string& folder);

}  // namespace lockstep::train
