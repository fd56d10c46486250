// The subcommands. Each adds itself to the program and sets the exit status when it ran.
#pragma once

namespace CLI {
class App;
}

namespace lockstep::cli {

void add_train(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_checkpoint(CLI::App& app, int& status);

}  // namespace lockstep::cli
