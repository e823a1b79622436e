package main

import _ "time/tzdata" // schedules have zones, and the machine may have no database of them
