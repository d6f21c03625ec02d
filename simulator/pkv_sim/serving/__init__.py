"""How requests are served on one replica or several, and why what they did not hit was missed."""
